from __future__ import annotations

import shutil
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.ltx2 import pipeline_ltx2_condition
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline, LTX2VideoCondition, calculate_shift
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from support.jobs import make_job, make_video_job
from torch import Tensor

from deployments.backend import JobError
from deployments.checkpoint_files import CheckpointError
from deployments.contract.job import GenerationJob
from deployments.contract.model import BUNDLED, ModelConfig, VideoGuidance
from deployments.contract.request import FPS
from deployments.families.ltx2 import Ltx2, distilled_levels, enhancing_levels, scheduled_levels
from deployments.families.pipeline import LoadOptions
from deployments.families.video_family import DraftLatents, VideoInputs, VideoState
from deployments.images import Pixels, recompress
from deployments.video.writer import Audio

CHECKPOINT = BUNDLED / "ltx2"
WIDTH, HEIGHT = 96, 64


def load_options(render_side: int | None = None, **options: Any) -> LoadOptions:
    return LoadOptions(
        torch.device("cpu"),
        torch.float32,
        config=ModelConfig(render_side=render_side, **{"keyframe_crf": 0, **options}),
    )


@pytest.fixture(scope="module")
def stock() -> Any:
    """The bundled pipeline with random weights, to which all inputs matter."""
    pipeline: Any = LTX2ConditionPipeline.from_pretrained(CHECKPOINT, dtype=torch.float32, local_files_only=True)
    torch.manual_seed(0)
    pipeline.transformer = type(pipeline.transformer).from_config(pipeline.transformer.config).eval()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def undistilled_stock(stock: Any) -> Any:
    """A pipeline like LTX-2.3."""
    torch.manual_seed(1)
    options = {"num_layers": 4, "perturbed_attn": True, "cross_attn_mod": True, "audio_cross_attn_mod": True}
    transformer = type(stock.transformer).from_config(stock.transformer.config, **options).eval()
    pipeline = LTX2ConditionPipeline(**{**stock.components, "transformer": transformer})
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def family(stock: Any) -> Ltx2:
    return Ltx2(stock, load_options())


def make_video(
    frames: int = 25,
    steps: int = 3,
    guidance: float | None = None,
    seed: int = 7,
    enhances: str | None = None,
    **video: Any,
) -> GenerationJob:
    return make_video_job(steps=steps, guidance=guidance, seed=seed, draft=enhances, video={"frames": frames, **video})


def noise(seed: int, *shape: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)


def denoise(family: Ltx2, job: GenerationJob, inputs: VideoInputs | None = None) -> VideoState:
    state = family.encode(job, inputs or VideoInputs())
    while not state.is_denoised:
        family.step(state)
    return state


def from_stock(
    pipeline: Any,
    job: GenerationJob,
    conditions: list[LTX2VideoCondition] | None,
    guidance: VideoGuidance | None = None,
) -> DraftLatents:
    """Returns the stock pipeline's latents with `guidance`, by default plain CFG."""
    assert job.request.video is not None
    cfg = job.request.guidance or 1.0
    g = guidance or VideoGuidance(audio=cfg, stg=0.0, modality=1.0, rescale=0.0)
    options: dict[str, Any] = {"guidance_scale": cfg, "audio_guidance_scale": g.audio}
    options |= {"spatio_temporal_guidance_blocks": list(g.stg_blocks)}
    for name, scale in (("stg_scale", g.stg), ("modality_scale", g.modality), ("guidance_rescale", g.rescale)):
        options |= {name: scale, f"audio_{name}": scale}
    defaults = signature(LTX2ConditionPipeline.__call__).parameters
    video, audio = pipeline(
        conditions=conditions,
        prompt=job.request.prompt,
        width=job.request.width,
        height=job.request.height,
        num_frames=job.request.video.frames,
        frame_rate=float(FPS),
        num_inference_steps=job.request.steps,
        generator=torch.Generator("cpu").manual_seed(job.request.seed),
        use_cross_timestep=bool(pipeline.transformer.config.cross_attn_mod),
        max_sequence_length=min(1024, pipeline.tokenizer.model_max_length),
        output_type="latent",
        return_dict=False,
        **{name: value for name, value in options.items() if value != defaults[name].default},
    )
    return DraftLatents(video, audio)


def assert_same(mine: DraftLatents, theirs: DraftLatents) -> None:
    assert torch.equal(mine.video, theirs.video)
    assert torch.equal(mine.audio, theirs.audio)


@pytest.mark.parametrize("guidance", [None, 4.5])
def test_video_from_a_prompt_equals_stock(stock: Any, family: Ltx2, guidance: float | None) -> None:
    job = make_video(17, 2, guidance)
    assert_same(family.draft(denoise(family, job)), from_stock(stock, job, None))


@pytest.mark.parametrize(("frames_at", "guidance"), [((0, 17), None), ((1, 9), 2.0)])
def test_video_from_keyframes_equals_stock(
    stock: Any, family: Ltx2, frames_at: tuple[int, ...], guidance: float | None
) -> None:
    """Keyframes are at the first frame or after whole latents, where the stock pipeline can place them."""
    time = stock.vae.temporal_compression_ratio
    job = make_video(guidance=guidance, times=tuple(frame / FPS for frame in frames_at))
    videos = tuple(noise(frame, HEIGHT, WIDTH) for frame in frames_at)
    indices = [0 if frame == 0 else (frame - 1) // time + 1 for frame in frames_at]
    conditions = [LTX2VideoCondition(frames=p, index=i, crf=0) for p, i in zip(videos, indices, strict=True)]
    assert_same(family.draft(denoise(family, job, VideoInputs(videos))), from_stock(stock, job, conditions))


def test_video_with_all_guidance_parts_equals_stock(undistilled_stock: Any) -> None:
    """Guidance has its defaults, apart from the block, then one changed part each."""
    parts = {"audio": 1.0, "stg": 0.0, "stg_blocks": (1, 2), "modality": 1.0, "rescale": 0.0}
    video, audios = noise(9, HEIGHT, WIDTH), list[Tensor]()
    job = make_video(frames=9, steps=1, guidance=3.0, times=(0.0, 1 / FPS))
    for changed in ({}, *({part: value} for part, value in parts.items())):
        guidance = VideoGuidance.model_validate({"stg_blocks": (3,)} | changed)
        family = Ltx2(undistilled_stock, load_options(video_guidance=guidance))
        mine = family.draft(denoise(family, job, VideoInputs((video, video))))
        conditions = [LTX2VideoCondition(frames=video, index=index, crf=0) for index in (0, 1)]
        assert_same(mine, from_stock(undistilled_stock, job, conditions, guidance))
        audios.append(mine.audio)
    assert not any(torch.allclose(audio, audios[0], atol=1e-3) for audio in audios[1:])


def test_keyframes_are_compressed_as_in_stock(stock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock pipeline needs PyAV for it; the test replaces it by ffmpeg."""
    monkeypatch.setattr(pipeline_ltx2_condition, "apply_image_conditioning_crf", recompress)
    family, videos = Ltx2(stock, load_options(keyframe_crf=None)), (noise(0, 64, 96), noise(1, 65, 97))
    job = make_video(times=(0.0, 9 / FPS))
    conditions = [LTX2VideoCondition(frames=p, index=2 * i) for i, p in enumerate(videos)]
    assert_same(family.draft(denoise(family, job, VideoInputs(videos))), from_stock(stock, job, conditions))


def test_equal_prompts_are_encoded_once(stock: Any, family: Ltx2, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, encode, read = Ltx2(stock, load_options()), stock.encode_prompt, list[str]()

    def encode_and_count(texts: list[str], **options: Any) -> Any:
        read.extend(texts)
        return encode(texts, **options)

    monkeypatch.setattr(stock, "encode_prompt", encode_and_count)
    jobs = [make_video(guidance=guidance) for guidance in (None, 3.0, 3.0)]
    prompts = [fresh.encode(job, VideoInputs()).prompt for job in jobs]
    assert read == [jobs[0].request.prompt, ""]
    assert torch.equal(prompts[2].for_video, family.encode(jobs[2], VideoInputs()).prompt.for_video)


def test_vocoder_is_loaded_in_float32() -> None:
    family = Ltx2.load(CHECKPOINT, LoadOptions(torch.device("cpu"), torch.bfloat16))
    vocoder = LTX2Vocoder.from_pretrained(CHECKPOINT, subfolder="vocoder", dtype=torch.float32).state_dict()
    assert family.transformer.dtype == torch.bfloat16
    loaded = family._audio_latents._vocoder.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in vocoder.items())


def test_continuation_equals_stock(stock: Any, family: Ltx2) -> None:
    """The lead has no audio: the stock pipeline can't take it."""
    job, lead = make_video(frames=16), noise(0, 9, HEIGHT, WIDTH)
    mine = denoise(family, job, VideoInputs(lead=lead))
    theirs = from_stock(stock, make_video(frames=25), [LTX2VideoCondition(frames=lead, index=0, crf=0)])
    # The last bits depend on whether the audio has one time or one per token.
    assert torch.allclose(family.draft(mine).video, theirs.video, atol=1e-4)
    assert torch.allclose(family.draft(mine).audio, theirs.audio, atol=1e-4)
    assert len(np.concatenate(list(family.frames(mine)))) == 16


def test_given_frames_and_audio_stay_unchanged(family: Ltx2) -> None:
    video, lead = (noise(1, HEIGHT, WIDTH),), noise(0, 9, HEIGHT, WIDTH)
    like = family.draft(family.encode(make_video(), VideoInputs()))
    drafted = family.encode(make_video(enhances="d", times=(0.0,)), VideoInputs(video, draft=plain(1, like))).video
    mask = drafted.conditioning_mask[0, :, 0] > 0
    assert mask.any()
    assert torch.equal(drafted.x[:, mask], drafted.clean_latents[:, mask]), "keyframes came from the draft"
    inputs = VideoInputs(video, lead=lead, lead_audio=sine(seconds=9 / FPS))
    state = family.encode(make_video(frames=16, times=(0.25,)), inputs)
    streams = (state.video, state.audio)
    masks = [stream.conditioning_mask[0, :, 0] > 0 for stream in streams]
    before = [stream.x.clone() for stream in streams]
    while not state.is_denoised:
        family.step(state)
    assert masks[0].any()
    for stream, mask, x in zip(streams, masks, before, strict=True):
        assert torch.equal(stream.x[:, mask], x[:, mask])
        assert torch.equal(stream.x[:, mask], stream.clean_latents[:, mask])
        assert not torch.isclose(stream.x[:, ~mask], x[:, ~mask]).any(-1).all()


def sine(seconds: float, pitch: float = 440.0, rate: int = 48_000) -> Audio:
    samples = 0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)
    return Audio(samples.astype(np.float32), rate)


def test_failed_step_changes_nothing(family: Ltx2, monkeypatch: pytest.MonkeyPatch) -> None:
    state = family.encode(make_video(), VideoInputs())
    family.step(state)
    before = (state.video.x, state.audio.x, state.denoised, state.i)

    def exhaust(**_: object) -> None:
        raise torch.OutOfMemoryError("too much")

    with monkeypatch.context() as patched:
        patched.setattr(family.transformer, "forward", exhaust)
        with pytest.raises(torch.OutOfMemoryError):
            family.step(state)
    assert all(a is b for a, b in zip(before, (state.video.x, state.audio.x, state.denoised, state.i), strict=True))


def test_draft_has_half_the_render_side(stock: Any) -> None:
    for side, drafted in ((512, 256), (192, 128), (128, 128), (64, 64)):
        family = Ltx2(stock, load_options(render_side=side))
        assert family.scale.space == 32
        full, draft = family.shape(make_video(), lead=0), family.shape(make_video(draft=True), lead=0)
        assert (min(full.canvas.size), min(draft.canvas.size)) == (side, drafted)
    assert Ltx2(stock, load_options()).shape(make_video(draft=True), lead=0).canvas.frame == (HEIGHT, WIDTH)


def plain(seed: int, like: DraftLatents) -> DraftLatents:
    """Returns a draft that is constant over the image, so that enlarging it changes nothing."""
    generator = torch.Generator().manual_seed(seed)
    video = torch.randn((*like.video.shape[:3], 1, 1), generator=generator)
    return DraftLatents(video.expand_as(like.video), torch.randn(like.audio.shape, generator=generator))


@pytest.mark.slow
def test_enhancement_starts_from_the_noised_draft(stock: Any) -> None:
    family = Ltx2(stock, load_options(render_side=256))
    like = family.draft(family.encode(make_video(draft=True), VideoInputs()))
    drafts = [plain(seed, like) for seed in (1, 2)]
    states = [family.encode(make_video(enhances="d"), VideoInputs(draft=draft)) for draft in drafts]
    first, second = (family.draft(state) for state in states)
    assert states[0].shape.grid[1:] > tuple(like.video.shape[3:])
    sigma = float(states[0].sigmas[0])
    assert 0.5 < sigma < 1
    redrawn = [family._video_latents.reencode(draft.video, states[0].shape) for draft in drafts]
    assert torch.allclose(first.video - second.video, (1 - sigma) * (redrawn[0] - redrawn[1]), atol=1e-4)
    assert torch.allclose(first.audio - second.audio, (1 - sigma) * (drafts[0].audio - drafts[1].audio), atol=1e-4)
    other = family.draft(family.encode(make_video(enhances="d", seed=8), VideoInputs(draft=drafts[0])))
    assert not torch.allclose(first.video, other.video, atol=0.1)


def test_enlarged_draft_keeps_positions(family: Ltx2) -> None:
    like = family.draft(family.encode(make_video(), VideoInputs()))
    dark, bright = torch.zeros_like(like.video[..., :1, :2]), torch.zeros_like(like.video[..., :1, :2])
    bright[..., 0] = 1
    inputs = [VideoInputs(draft=DraftLatents(p, like.audio)) for p in (bright, dark)]
    states = [family.encode(make_video(enhances="d"), each) for each in inputs]
    lit, unlit = (family.draft(state).video for state in states)
    columns = (lit - unlit).mean((0, 1, 2, 3))
    assert (columns.diff() < 1e-5).all()
    assert columns[0] > columns[-1] + 0.01


def test_draft_of_another_shape_is_rejected(family: Ltx2) -> None:
    draft = family.draft(denoise(family, make_video(draft=True)))
    cut = DraftLatents(draft.video[:, :-1], draft.audio), DraftLatents(draft.video, draft.audio[:, :, :-1])
    for frames, other in ((25, cut[0]), (17, draft), (25, cut[1])):
        with pytest.raises(JobError, match="another model"):
            family.encode(make_video(frames=frames, enhances="d"), VideoInputs(draft=other))


def test_upsampler_enlarges_drafts(stock: Any, family: Ltx2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channels = int(stock.transformer.config.in_channels)
    upsampler: Any = LTX2LatentUpsamplerModel(in_channels=channels, mid_channels=32, num_blocks_per_stage=1)
    folder = tmp_path / "ltx2"
    shutil.copytree(CHECKPOINT, folder)
    upsampler.save_pretrained(folder / "latent_upsampler")
    enlarging = Ltx2.load(folder, load_options())
    audio = family.draft(family.encode(make_video(), VideoInputs())).audio
    small = DraftLatents(torch.randn(1, channels, 4, 1, 2), audio)
    job = make_video(enhances="d", steps=3)
    state, plain = (each.encode(job, VideoInputs(draft=small)) for each in (enlarging, family))
    assert state.video.x.shape == plain.video.x.shape
    assert torch.isfinite(state.video.x).all()
    assert not torch.equal(state.video.x, plain.video.x)
    (folder / "latent_upsampler" / "config.json").unlink()
    with pytest.raises(CheckpointError):
        Ltx2.load(folder, load_options())


def test_image_job_is_rejected(family: Ltx2) -> None:
    with pytest.raises(JobError, match="videos"):
        family.encode(make_job(), VideoInputs())


@pytest.mark.parametrize("terminal", [None, 0.1])
def test_probe_is_finite_with_every_schedule(stock: Any, terminal: float | None) -> None:
    original_scheduler = stock.scheduler
    try:
        stock.scheduler = type(original_scheduler).from_config(original_scheduler.config, shift_terminal=terminal)
        assert torch.isfinite(Ltx2(stock, load_options()).probe()).all()
    finally:
        stock.scheduler = original_scheduler


def test_missing_component_is_a_checkpoint_error(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "ltx2")
    shutil.rmtree(tmp_path / "ltx2" / "vocoder")
    with pytest.raises(CheckpointError, match="loaded"):
        Ltx2.load(tmp_path / "ltx2", load_options())


@pytest.mark.parametrize(
    ("component", "fields", "reason"),
    [("vae", {"timestep_conditioning": True}, "removes noise"), ("transformer", {"patch_size": 2}, "several latents")],
)
def test_unsupported_checkpoint_is_rejected(
    family: Ltx2, monkeypatch: pytest.MonkeyPatch, stock: Any, component: str, fields: dict[str, Any], reason: str
) -> None:
    model = getattr(stock, component)
    changed = type(model.config)({**model.config, **fields})
    monkeypatch.setattr(model, "_internal_dict", changed)
    monkeypatch.setattr(LTX2ConditionPipeline, "from_pretrained", lambda *_, **__: stock)
    with pytest.raises(CheckpointError, match=reason):
        Ltx2.load(CHECKPOINT, load_options())


def scheduler(**options: Any) -> Any:
    return FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, **options)


def assert_falls(sigmas: Tensor, steps: int, first: float) -> None:
    assert sigmas.shape == (steps + 1,)
    assert sigmas.dtype == torch.float32
    assert (sigmas.diff() < 0).all()
    assert float(sigmas[0]) == pytest.approx(first)
    assert float(sigmas[-1]) == 0


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_noise_levels_fall_to_zero(steps: int) -> None:
    assert_falls(distilled_levels(steps), steps, 1.0)
    assert_falls(enhancing_levels(steps), steps, STAGE_2_DISTILLED_SIGMA_VALUES[0])
    for terminal, tokens in ((None, 6), (None, 124440), (0.1, 6), (0.1, 124440)):
        assert_falls(scheduled_levels(scheduler(shift_terminal=terminal), steps, tokens), steps, 1.0)


def test_distilled_noise_levels_are_exact() -> None:
    assert distilled_levels(8).tolist() == torch.tensor([*DISTILLED_SIGMA_VALUES, 0.0]).tolist()
    assert enhancing_levels(3).tolist() == torch.tensor([*STAGE_2_DISTILLED_SIGMA_VALUES, 0.0]).tolist()
    assert torch.equal(distilled_levels(4), distilled_levels(8)[::2])


@pytest.mark.parametrize(("tokens", "counted"), [(24, 24), (4096, 4096), (53680, 4096)])
def test_schedule_equals_stock_up_to_its_maximum(tokens: int, counted: int) -> None:
    stock = scheduler(shift_terminal=0.1)
    before = stock.sigmas.clone()
    mine = scheduled_levels(stock, 7, tokens)
    assert torch.equal(stock.sigmas, before), "videos share the scheduler"
    stock.set_timesteps(sigmas=np.linspace(1.0, 1 / 7, 7), mu=calculate_shift(counted, 256, 4096, 0.95, 2.05))
    assert torch.equal(mine, stock.sigmas)
