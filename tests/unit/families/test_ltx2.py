from __future__ import annotations

import shutil
from dataclasses import replace
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
from support.jobs import make_clip_job, make_job
from torch import Tensor

from deployments.backend import JobError
from deployments.checkpoint_files import CheckpointError
from deployments.contract.job import FPS, GenerationJob
from deployments.contract.model import BUNDLED, VideoGuidance
from deployments.families.ltx2 import Ltx2, distilled_levels, enhancing_levels, scheduled_levels
from deployments.families.pipeline import LoadOptions
from deployments.families.video_family import ClipInputs, ClipState, Draft
from deployments.images import Pixels, recompressed
from deployments.video.writer import Sound

CHECKPOINT = BUNDLED / "ltx2"
WIDTH, HEIGHT = 96, 64


def load_options(render_side: int | None = None, **options: Any) -> LoadOptions:
    return LoadOptions(torch.device("cpu"), torch.float32, render_side=render_side, **{"keyframe_crf": 0, **options})


@pytest.fixture(scope="module")
def stock() -> Any:
    """The bundled one with random weights: all inputs matter to them, whatever others have learned."""
    pipeline: Any = LTX2ConditionPipeline.from_pretrained(CHECKPOINT, dtype=torch.float32, local_files_only=True)
    torch.manual_seed(0)
    pipeline.transformer = type(pipeline.transformer).from_config(pipeline.transformer.config).eval()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def undistilled(stock: Any) -> Any:
    """Built as LTX-2.3, with as many blocks as STG needs by default."""
    torch.manual_seed(1)
    options = {"num_layers": 29, "perturbed_attn": True, "cross_attn_mod": True, "audio_cross_attn_mod": True}
    transformer = type(stock.transformer).from_config(stock.transformer.config, **options).eval()
    pipeline = LTX2ConditionPipeline(**{**stock.components, "transformer": transformer})
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def family(stock: Any) -> Ltx2:
    return Ltx2(stock, load_options())


def make_clip(
    frames: int = 25, steps: int = 3, guidance: float | None = None, seed: int = 7, **clip: Any
) -> GenerationJob:
    return make_clip_job(steps=steps, guidance=guidance, seed=seed, clip={"frames": frames, **clip})


def noise(seed: int, *shape: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)


def denoised(family: Ltx2, job: GenerationJob, inputs: ClipInputs | None = None) -> ClipState:
    state = family.encode(job, inputs or ClipInputs())
    while not state.is_denoised:
        family.step(state)
    return state


def from_stock(
    pipeline: Any,
    job: GenerationJob,
    conditions: list[LTX2VideoCondition] | None,
    guidance: VideoGuidance | None = None,
) -> Draft:
    """With plain CFG, unless `guidance` is given, of which it is told what is not its default."""
    assert job.clip is not None
    cfg = job.guidance or 1.0
    g = guidance or VideoGuidance(audio=cfg, stg=0.0, modality=1.0, rescale=0.0)
    options: dict[str, Any] = {"guidance_scale": cfg, "audio_guidance_scale": g.audio}
    options |= {"spatio_temporal_guidance_blocks": list(g.stg_blocks)}
    for name, scale in (("stg_scale", g.stg), ("modality_scale", g.modality), ("guidance_rescale", g.rescale)):
        options |= {name: scale, f"audio_{name}": scale}
    defaults = signature(LTX2ConditionPipeline.__call__).parameters
    picture, sound = pipeline(
        conditions=conditions,
        prompt=job.prompt,
        width=job.width,
        height=job.height,
        num_frames=job.clip.frames,
        frame_rate=float(FPS),
        num_inference_steps=job.steps,
        generator=torch.Generator("cpu").manual_seed(job.seed),
        use_cross_timestep=bool(pipeline.transformer.config.cross_attn_mod),
        max_sequence_length=min(1024, pipeline.tokenizer.model_max_length),
        output_type="latent",
        return_dict=False,
        **{name: value for name, value in options.items() if value != defaults[name].default},
    )
    return Draft(picture, sound)


def assert_same(mine: Draft, theirs: Draft) -> None:
    assert torch.equal(mine.picture, theirs.picture)
    assert torch.equal(mine.sound, theirs.sound)


@pytest.mark.parametrize(("frames", "steps", "guidance"), [(25, 3, None), (17, 2, 4.5)])
def test_a_clip_from_words_is_the_stock_pipelines(
    stock: Any, family: Ltx2, frames: int, steps: int, guidance: float | None
) -> None:
    job = make_clip(frames, steps, guidance)
    assert_same(family.draft(denoised(family, job)), from_stock(stock, job, None))


@pytest.mark.parametrize(("frames_at", "guidance"), [((0, 17), None), ((1, 9), 2.0)])
def test_a_clip_from_keyframes_is_the_stock_pipelines(
    stock: Any, family: Ltx2, frames_at: tuple[int, ...], guidance: float | None
) -> None:
    """At the first frame, and where the stock pipeline can place others: behind whole latents."""
    time = stock.vae.temporal_compression_ratio
    job = make_clip(guidance=guidance, times=tuple(frame / FPS for frame in frames_at))
    pictures = tuple(noise(frame, HEIGHT, WIDTH) for frame in frames_at)
    indices = [0 if frame == 0 else (frame - 1) // time + 1 for frame in frames_at]
    conditions = [LTX2VideoCondition(frames=p, index=i, crf=0) for p, i in zip(pictures, indices, strict=True)]
    assert_same(family.draft(denoised(family, job, ClipInputs(pictures))), from_stock(stock, job, conditions))


def test_with_all_parts_of_guidance_a_clip_is_the_stock_pipelines(undistilled: Any) -> None:
    """At its defaults, and with each part changed, which matters."""
    parts = {"audio": 1.0, "stg": 0.0, "stg_blocks": (1, 2), "modality": 1.0, "rescale": 0.0}
    picture, heard = noise(9, HEIGHT, WIDTH), list[Tensor]()
    job = make_clip(frames=9, steps=1, guidance=3.0, times=(0.0, 1 / FPS))
    for guidance in (VideoGuidance(), *(replace(VideoGuidance(), **{part: parts[part]}) for part in parts)):
        family = Ltx2(undistilled, load_options(video_guidance=guidance))
        mine = family.draft(denoised(family, job, ClipInputs((picture, picture))))
        conditions = [LTX2VideoCondition(frames=picture, index=index, crf=0) for index in (0, 1)]
        assert_same(mine, from_stock(undistilled, job, conditions, guidance))
        heard.append(mine.sound)
    assert not any(torch.allclose(sound, heard[0], atol=1e-3) for sound in heard[1:])


def test_keyframes_are_compressed_where_the_stock_pipeline_does_so(stock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs PyAV for that; here ffmpeg takes its place."""
    monkeypatch.setattr(pipeline_ltx2_condition, "apply_image_conditioning_crf", recompressed)
    family, pictures = Ltx2(stock, load_options(keyframe_crf=None)), (noise(0, 64, 96), noise(1, 65, 97))
    job = make_clip(times=(0.0, 9 / FPS))
    conditions = [LTX2VideoCondition(frames=p, index=2 * i) for i, p in enumerate(pictures)]
    assert_same(family.draft(denoised(family, job, ClipInputs(pictures))), from_stock(stock, job, conditions))


def test_equal_prompts_are_encoded_once(stock: Any, family: Ltx2, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, encode, read = Ltx2(stock, load_options()), stock.encode_prompt, list[str]()

    def counted(texts: list[str], **options: Any) -> Any:
        read.extend(texts)
        return encode(texts, **options)

    monkeypatch.setattr(stock, "encode_prompt", counted)
    jobs = [make_clip(guidance=guidance) for guidance in (None, 3.0, 3.0)]
    prompts = [fresh.encode(job, ClipInputs()).prompt for job in jobs]
    assert read == [jobs[0].prompt, ""]
    assert torch.equal(prompts[2].for_picture, family.encode(jobs[2], ClipInputs()).prompt.for_picture)


def test_the_vocoder_is_read_in_full_precision() -> None:
    family = Ltx2.load(CHECKPOINT, LoadOptions(torch.device("cpu"), torch.bfloat16))
    vocoder = LTX2Vocoder.from_pretrained(CHECKPOINT, subfolder="vocoder", dtype=torch.float32).state_dict()
    assert family.transformer.dtype == torch.bfloat16
    loaded = family._sound._vocoder.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in vocoder.items())


def test_the_beginning_of_a_clip_that_goes_on_is_the_stock_pipelines(stock: Any, family: Ltx2) -> None:
    """Without the sound, which that one can't be given."""
    job, lead = make_clip(frames=16), noise(0, 9, HEIGHT, WIDTH)
    mine = denoised(family, job, ClipInputs(lead=lead))
    theirs = from_stock(stock, make_clip(frames=25), [LTX2VideoCondition(frames=lead, index=0, crf=0)])
    # The last bits depend on whether the sound has one time, or as many as it has tokens.
    assert torch.allclose(family.draft(mine).picture, theirs.picture, atol=1e-4)
    assert torch.allclose(family.draft(mine).sound, theirs.sound, atol=1e-4)
    assert len(np.concatenate(list(family.frames(mine)))) == 16


def test_what_is_given_stays_as_it_is(family: Ltx2) -> None:
    picture, lead = (noise(1, HEIGHT, WIDTH),), noise(0, 9, HEIGHT, WIDTH)
    like = family.draft(family.encode(make_clip(), ClipInputs()))
    drafted = family.encode(make_clip(enhance="d", times=(0.0,)), ClipInputs(picture, draft=plain(1, like))).picture
    given = drafted.known[0, :, 0] > 0
    assert given.any()
    assert torch.equal(drafted.x[:, given], drafted.given[:, given]), "it is not taken from the draft"
    inputs = ClipInputs(picture, lead=lead, lead_sound=a_sine(seconds=9 / FPS))
    state = family.encode(make_clip(frames=16, times=(0.25,)), inputs)
    streams = (state.picture, state.sound)
    known = [stream.known[0, :, 0] > 0 for stream in streams]
    before = [stream.x.clone() for stream in streams]
    while not state.is_denoised:
        family.step(state)
    assert known[0].any()
    for stream, given, x in zip(streams, known, before, strict=True):
        assert torch.equal(stream.x[:, given], x[:, given])
        assert torch.equal(stream.x[:, given], stream.given[:, given])
        assert not torch.isclose(stream.x[:, ~given], x[:, ~given]).any(-1).all()


def a_sine(seconds: float, pitch: float = 440.0, rate: int = 48_000) -> Sound:
    samples = 0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)
    return Sound(samples.astype(np.float32), rate)


def test_a_step_that_fails_changes_nothing(family: Ltx2, monkeypatch: pytest.MonkeyPatch) -> None:
    state = family.encode(make_clip(), ClipInputs())
    family.step(state)
    before = (state.picture.x, state.sound.x, state.denoised, state.i)

    def exhausted(**_: object) -> None:
        raise torch.OutOfMemoryError("too much")

    with monkeypatch.context() as patched:
        patched.setattr(family.transformer, "forward", exhausted)
        with pytest.raises(torch.OutOfMemoryError):
            family.step(state)
    assert all(a is b for a, b in zip(before, (state.picture.x, state.sound.x, state.denoised, state.i), strict=True))


def test_distilled_models_get_the_noise_levels_they_know(stock: Any) -> None:
    state = Ltx2(stock, load_options(distilled=True)).encode(make_clip(steps=8), ClipInputs())
    assert torch.equal(state.sigmas, distilled_levels(8))


def test_a_draft_is_half_as_large_where_the_side_is_given(stock: Any) -> None:
    for side, drafted in ((512, 256), (192, 128), (128, 128), (64, 64)):
        family = Ltx2(stock, load_options(render_side=side))
        assert family.scale.space == 32
        full, draft = family.shape(make_clip(), lead=0), family.shape(make_clip(draft=True), lead=0)
        assert (min(full.canvas.size), min(draft.canvas.size)) == (side, drafted)
    assert Ltx2(stock, load_options()).shape(make_clip(draft=True), lead=0).canvas.frame == (HEIGHT, WIDTH)


def plain(seed: int, like: Draft) -> Draft:
    """Without differences between places, so that enlarging it changes nothing."""
    generator = torch.Generator().manual_seed(seed)
    picture = torch.randn((*like.picture.shape[:3], 1, 1), generator=generator)
    return Draft(picture.expand_as(like.picture), torch.randn(like.sound.shape, generator=generator))


@pytest.mark.slow
def test_a_clip_that_is_enhanced_begins_with_its_draft_behind_noise(stock: Any) -> None:
    family = Ltx2(stock, load_options(render_side=256))
    like = family.draft(family.encode(make_clip(draft=True), ClipInputs()))
    drafts = [plain(seed, like) for seed in (1, 2)]
    states = [family.encode(make_clip(enhance="d"), ClipInputs(draft=draft)) for draft in drafts]
    first, second = (family.draft(state) for state in states)
    assert states[0].shape.grid[1:] > tuple(like.picture.shape[3:])
    sigma = float(states[0].sigmas[0])
    assert 0.5 < sigma < 1
    redrawn = [family._pictures.redrawn(draft.picture, states[0].shape) for draft in drafts]
    assert torch.allclose(first.picture - second.picture, (1 - sigma) * (redrawn[0] - redrawn[1]), atol=1e-4)
    assert torch.allclose(first.sound - second.sound, (1 - sigma) * (drafts[0].sound - drafts[1].sound), atol=1e-4)
    other = family.draft(family.encode(make_clip(enhance="d", seed=8), ClipInputs(draft=drafts[0])))
    assert not torch.allclose(first.picture, other.picture, atol=0.1)


def test_drafts_are_enlarged_in_place(family: Ltx2) -> None:
    """What is on the left stays there."""
    like = family.draft(family.encode(make_clip(), ClipInputs()))
    dark, bright = torch.zeros_like(like.picture[..., :1, :2]), torch.zeros_like(like.picture[..., :1, :2])
    bright[..., 0] = 1
    states = [family.encode(make_clip(enhance="d"), ClipInputs(draft=Draft(p, like.sound))) for p in (bright, dark)]
    lit, unlit = (family.draft(state).picture for state in states)
    columns = (lit - unlit).mean((0, 1, 2, 3))
    assert (columns.diff() < 1e-5).all()
    assert columns[0] > columns[-1] + 0.01


def test_a_draft_that_does_not_fit_is_refused(family: Ltx2) -> None:
    draft = family.draft(denoised(family, make_clip(draft=True)))
    cut = Draft(draft.picture[:, :-1], draft.sound), Draft(draft.picture, draft.sound[:, :, :-1])
    for frames, other in ((25, cut[0]), (17, draft), (25, cut[1])):
        with pytest.raises(JobError, match="another model"):
            family.encode(make_clip(frames=frames, enhance="d"), ClipInputs(draft=other))


def test_a_checkpoint_with_an_upsampler_enlarges_drafts_with_it(
    stock: Any, family: Ltx2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = int(stock.transformer.config.in_channels)
    upsampler: Any = LTX2LatentUpsamplerModel(in_channels=channels, mid_channels=32, num_blocks_per_stage=1)
    folder = tmp_path / "ltx2"
    shutil.copytree(CHECKPOINT, folder)
    upsampler.save_pretrained(folder / "latent_upsampler")
    enlarging = Ltx2.load(folder, load_options())
    small = Draft(torch.randn(1, channels, 4, 1, 2), family.draft(family.encode(make_clip(), ClipInputs())).sound)
    job = make_clip(enhance="d", steps=3)
    state, plain = (each.encode(job, ClipInputs(draft=small)) for each in (enlarging, family))
    assert state.picture.x.shape == plain.picture.x.shape
    assert torch.isfinite(state.picture.x).all()
    assert not torch.equal(state.picture.x, plain.picture.x)
    (folder / "latent_upsampler" / "config.json").unlink()
    with pytest.raises(CheckpointError):
        Ltx2.load(folder, load_options())


def test_a_job_for_a_picture_is_refused(family: Ltx2) -> None:
    with pytest.raises(JobError, match="videos"):
        family.encode(make_job(), ClipInputs())


@pytest.mark.parametrize("terminal", [None, 0.1])
def test_a_probe_is_finite_with_every_schedule(stock: Any, terminal: float | None) -> None:
    kept = stock.scheduler
    try:
        stock.scheduler = type(kept).from_config(kept.config, shift_terminal=terminal)
        assert torch.isfinite(Ltx2(stock, load_options()).probe()).all()
    finally:
        stock.scheduler = kept


def test_a_checkpoint_with_a_missing_component_is_refused(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "ltx2")
    shutil.rmtree(tmp_path / "ltx2" / "vocoder")
    with pytest.raises(CheckpointError, match="loaded"):
        Ltx2.load(tmp_path / "ltx2", load_options())


@pytest.mark.parametrize(
    ("component", "fields", "reason"),
    [("vae", {"timestep_conditioning": True}, "removes noise"), ("transformer", {"patch_size": 2}, "several latents")],
)
def test_a_checkpoint_of_a_kind_not_known_here_is_refused(
    family: Ltx2, monkeypatch: pytest.MonkeyPatch, stock: Any, component: str, fields: dict[str, Any], reason: str
) -> None:
    model = getattr(stock, component)
    changed = type(model.config)({**model.config, **fields})
    monkeypatch.setattr(model, "_internal_dict", changed)
    monkeypatch.setattr(LTX2ConditionPipeline, "from_pretrained", lambda *_, **__: stock)
    with pytest.raises(CheckpointError, match=reason):
        Ltx2.load(CHECKPOINT, load_options())


STEPS = [1, 5, 40]


def scheduler(**options: Any) -> Any:
    return FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, **options)


def assert_falls(sigmas: Tensor, steps: int, first: float) -> None:
    assert sigmas.shape == (steps + 1,)
    assert sigmas.dtype == torch.float32
    assert (sigmas.diff() < 0).all()
    assert float(sigmas[0]) == pytest.approx(first)
    assert float(sigmas[-1]) == 0


@pytest.mark.parametrize("steps", STEPS)
def test_any_number_of_steps_falls_to_none(steps: int) -> None:
    assert_falls(distilled_levels(steps), steps, 1.0)
    assert_falls(enhancing_levels(steps), steps, STAGE_2_DISTILLED_SIGMA_VALUES[0])


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("terminal", [None, 0.1])
@pytest.mark.parametrize("tokens", [6, 124440])
def test_any_schedule_falls_from_one_to_none(steps: int, terminal: float | None, tokens: int) -> None:
    assert_falls(scheduled_levels(scheduler(shift_terminal=terminal), steps, tokens), steps, 1.0)


def test_levels_that_models_were_distilled_to_are_met_exactly() -> None:
    assert distilled_levels(8).tolist() == torch.tensor([*DISTILLED_SIGMA_VALUES, 0.0]).tolist()
    assert enhancing_levels(3).tolist() == torch.tensor([*STAGE_2_DISTILLED_SIGMA_VALUES, 0.0]).tolist()
    assert torch.equal(distilled_levels(4), distilled_levels(8)[::2])


@pytest.mark.parametrize("tokens", [24, 4096])
def test_a_schedule_is_what_the_stock_pipeline_sets(tokens: int) -> None:
    stock = scheduler(shift_terminal=0.1)
    before = stock.sigmas.clone()
    mine = scheduled_levels(stock, 7, tokens)
    assert torch.equal(stock.sigmas, before), "the scheduler is shared between clips"
    stock.set_timesteps(sigmas=np.linspace(1.0, 1 / 7, 7), mu=calculate_shift(tokens, 256, 4096, 0.95, 2.05))
    assert torch.equal(mine, stock.sigmas)
    largest, huge = (scheduled_levels(stock, 6, count) for count in (4096, 53680))
    assert torch.equal(largest, huge), "larger than the scheduler knows"
