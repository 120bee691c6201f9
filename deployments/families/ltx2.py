"""LTX-2: videos with sound, from text, keyframes, the end of another video, or a draft.

Runs the components of diffusers' `LTX2ConditionPipeline` in its own loop, so that a video can wait, move and resume
elsewhere between any two steps. Results equal that pipeline's bit by bit, except for the noise levels of videos too
large for its scheduler, and for keyframes of another size than the video's, which are antialiased.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline, calculate_shift, rescale_noise_cfg
from diffusers.pipelines.ltx2.utils import (
    DISTILLED_SIGMA_VALUES,
    STAGE_2_DISTILLED_SIGMA_VALUES,
    resolve_default_image_crf,
)
from torch import Tensor

from deployments.backend import JobError
from deployments.checkpoint_files import CheckpointError
from deployments.contract.job import GenerationJob
from deployments.contract.model import VideoGuidance
from deployments.contract.request import ResolvedRequest, VideoParams
from deployments.families.canvas import Scale, VideoShape, video_shape
from deployments.families.ltx2_latents import AudioLatents, VideoLatents
from deployments.families.pipeline import LoadOptions, load_pipeline, prompt_length
from deployments.families.state import draw_noise, tensor_bytes
from deployments.families.vae import finite
from deployments.families.video_family import DraftLatents, PromptEmbeds, Stream, VideoInputs, VideoState, video_params
from deployments.images import Pixels
from deployments.lru_cache import MB, ByteCache
from deployments.torch_process import wait_for
from deployments.video.writer import Audio

ENHANCING: Final = tuple(STAGE_2_DISTILLED_SIGMA_VALUES)
"""Sigmas at which a draft is still visible through the noise."""


def scheduled_levels(scheduler: Any, steps: int, tokens: int) -> Tensor:
    """Returns sigmas (S+1,) from 1 to 0, as the stock pipeline derives them from the scheduler.

    Larger videos stay noisy for longer, up to the scheduler's maximum of tokens. The stock pipeline extrapolates beyond
    it, until no steps between 1 and 0 remain: 20 seconds in high definition have none.
    """
    if steps == 1:  # some schedulers stretch the range between the first and last sigma, which is empty here
        return torch.tensor([1.0, 0.0])
    own = type(scheduler).from_config(scheduler.config)
    config = scheduler.config
    max_tokens = config.get("max_image_seq_len", 4096)
    mu = calculate_shift(
        min(tokens, max_tokens),
        config.get("base_image_seq_len", 1024),
        max_tokens,
        config.get("base_shift", 0.95),
        config.get("max_shift", 2.05),
    )
    own.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu, device="cpu")
    return own.sigmas.float()


def distilled_levels(steps: int) -> Tensor:
    """Returns the sigmas of step-distilled models, (S+1,), interpolated for other numbers of steps."""
    return _resample(DISTILLED_SIGMA_VALUES, steps)


def enhancing_levels(steps: int, noise: float = ENHANCING[0]) -> Tensor:
    """Returns the sigmas for enhancing a draft, (S+1,), falling from `noise`."""
    return _resample(ENHANCING, steps) * (noise / ENHANCING[0])


def _resample(sigmas: list[float] | tuple[float, ...], steps: int) -> Tensor:
    curve = [*sigmas, 0.0]
    positions = np.linspace(0, len(sigmas), steps + 1)
    return torch.from_numpy(np.interp(positions, np.arange(len(curve)), curve)).float()


MAX_TEXT = 1024
_MIN_DRAFT_SIDE = 4
"""Tokens of the side of a draft at least, with `render_side`."""
_UPSAMPLER = "latent_upsampler"
"""Folder of a checkpoint. Without it, the frames of a draft are enlarged and encoded again."""


class Ltx2:
    def __init__(self, pipeline: Any, load_options: LoadOptions, upsampler: Any | None = None) -> None:
        """`pipeline` is a loaded `LTX2ConditionPipeline` on its device, its vocoder in float32."""
        self.transformer: Any = pipeline.transformer
        self._pipeline = pipeline
        self._upsampler = upsampler
        self._device = load_options.device
        self._render_side = load_options.config.render_side
        self._distilled = load_options.config.distilled
        self._enhance_noise = load_options.config.enhance_noise
        self._video_guidance = load_options.config.video_guidance
        crf = load_options.config.keyframe_crf
        if crf is None:
            crf = resolve_default_image_crf(pipeline.text_encoder)
        self._video_latents = VideoLatents(pipeline.vae, pipeline.transformer, load_options.device, crf)
        self._audio_latents = AudioLatents(
            pipeline.audio_vae, pipeline.vocoder, pipeline.transformer, load_options.device
        )
        self._text_length = prompt_length(pipeline.tokenizer, MAX_TEXT)
        self._prompts: ByteCache[str, tuple[Tensor, ...]] = ByteCache(
            load_options.config.caches.prompts_mb * MB, tensor_bytes
        )

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        pipeline = load_pipeline(folder, load_options, LTX2ConditionPipeline, in_float32=("vocoder",))
        upsampler: Any = None
        if (folder / _UPSAMPLER).is_dir():
            upsampler = _load_upsampler(folder, load_options)
        if pipeline.vae.config.timestep_conditioning:
            raise CheckpointError(f"{folder}: a decoder that itself removes noise is not known here")
        if int(pipeline.transformer.config.patch_size) != 1 or int(pipeline.transformer.config.patch_size_t) != 1:
            raise CheckpointError(f"{folder}: tokens of several latents are not known here")
        return cls(pipeline, load_options, upsampler)

    @property
    def scale(self) -> Scale:
        return Scale(self._video_latents.space, self._video_latents.time, self._audio_latents.per_second)

    def shape(self, job: GenerationJob, lead: int) -> VideoShape:
        """Returns the shape. With `render_side`, a draft has half the side of other videos, but a minimum."""
        video = video_params(job)
        side = self._render_side
        if side is not None and video.draft:
            side = max(side // 2, min(side, _MIN_DRAFT_SIDE * self.scale.space))
        return video_shape(
            job.request.width, job.request.height, lead=lead, frames=video.frames, scale=self.scale, render_side=side
        )

    @torch.inference_mode()
    def encode(self, job: GenerationJob, inputs: VideoInputs) -> VideoState:
        """Returns the video before its first step. Raises JobError for a draft of another model."""
        video = video_params(job)
        shape = self.shape(job, 0 if inputs.lead is None else len(inputs.lead))
        generator = torch.Generator("cpu").manual_seed(job.request.seed)
        draft = self._enlarge_draft(inputs.draft, shape) if inputs.draft is not None else None
        video = self._video_latents.stream(shape, inputs.lead, list(zip(video.times, inputs.keyframes, strict=True)))
        audio = self._audio_latents.stream(shape, inputs.lead_audio)
        sigmas = self._sigmas(job, video.x.shape[1])
        self._noise(video, generator, sigmas[0], None if draft is None else self._video_latents.tokens(draft.video))
        self._noise(audio, generator, sigmas[0], None if draft is None else self._audio_latents.tokens(draft.audio))
        return VideoState(
            job=job,
            shape=shape,
            video=video,
            audio=audio,
            prompt=self._prompt_embeds(job),
            sigmas=sigmas,
            chunks=self._video_latents.chunks(shape),
        )

    @torch.inference_mode()
    def step(self, state: VideoState) -> None:
        """Takes one denoising step, or none if it raises. Raises NotFinite and torch's errors."""
        sigma, following = state.sigmas[state.i], state.sigmas[state.i + 1]
        video, audio = self._denoise_with_guidance(state, sigma.to(self._device))
        # Checked at every step, as checkpoints of it serve other attempts.
        latents = [
            finite(stream.x + (following - sigma) * ((stream.x - denoised) / sigma))
            for stream, denoised in ((state.video, video), (state.audio, audio))
        ]
        if self._device.type == "cuda":
            wait_for(torch.cuda.current_stream(self._device))
        state.video.x, state.audio.x = latents
        state.denoised = video
        state.i += 1

    @torch.inference_mode()
    def frames(self, state: VideoState) -> Iterator[Pixels]:
        return self._video_latents.decode_frames(state.shape, state.video.x)

    @torch.inference_mode()
    def decode_audio(self, state: VideoState) -> Audio:
        return self._audio_latents.decode(state.shape, state.audio.x)

    @torch.inference_mode()
    def preview_frame(self, state: VideoState) -> Pixels | None:
        return None if state.denoised is None else self._video_latents.first_frame(state.shape, state.denoised)

    def draft(self, state: VideoState) -> DraftLatents:
        return DraftLatents(
            self._video_latents.latents(state.shape, state.video.x), self._audio_latents.latents(state.audio.x)
        )

    def probe(self) -> Tensor:
        """Takes one step of a tiny video. An error is due to the checkpoint or the device."""
        side = 2 * self.scale.space
        job = GenerationJob(
            id="probe",
            attempt=0,
            request=ResolvedRequest(
                prompt="a probe",
                width=side,
                height=side,
                steps=1,
                seed=0,
                output_format="mp4",
                video=VideoParams(frames=1),
            ),
            output_prefix="probe",
        )
        state = self.encode(job, VideoInputs())
        self.step(state)
        return state.video.x

    def _denoise_with_guidance(self, state: VideoState, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts video and audio without noise, with guidance, (1, N, C) float32. Given tokens stay."""
        guidance, prompt = self._guidance(state.job), state.prompt
        cond = PromptEmbeds(prompt.for_video[-1:], prompt.for_audio[-1:], prompt.mask[-1:])
        videos, audios = self._predict_denoised(state, sigma, prompt)
        weaker_videos, weaker_audios = [], []
        if len(prompt.mask) == 2:
            weaker_videos.append((_cfg(state.job) - 1, videos[:1]))
            weaker_audios.append((guidance.audio - 1, audios[:1]))
        for scale, options in (
            (guidance.stg, {"spatio_temporal_guidance_blocks": list(guidance.stg_blocks)}),
            (guidance.modality - 1, {"isolate_modalities": True}),
        ):
            if scale > 0:
                video, audio = self._predict_denoised(state, sigma, cond, **options)
                weaker_videos.append((scale, video))
                weaker_audios.append((scale, audio))
        return (
            _apply_guidance(state.video, videos[-1:], weaker_videos, guidance.rescale),
            _apply_guidance(state.audio, audios[-1:], weaker_audios, guidance.rescale),
        )

    def _predict_denoised(self, state: VideoState, sigma: Tensor, prompt: PromptEmbeds, **options: Any) -> list[Tensor]:
        """Predicts video and audio without noise for each row of the prompt, (rows, N, C)."""
        video, audio = state.video, state.audio
        rows = len(prompt.mask)
        time = sigma * self.transformer.config.timestep_scale_multiplier
        velocities = self.transformer(
            hidden_states=video.x.to(self.transformer.dtype).expand(rows, -1, -1),
            audio_hidden_states=audio.x.to(self.transformer.dtype).expand(rows, -1, -1),
            encoder_hidden_states=prompt.for_video,
            audio_encoder_hidden_states=prompt.for_audio,
            timestep=(time * (1 - video.conditioning_mask[..., 0])).expand(rows, -1),
            audio_timestep=_audio_times(state, time).expand(rows, -1),
            sigma=time.expand(rows),
            audio_sigma=time.expand(rows),
            encoder_attention_mask=prompt.mask,
            audio_encoder_attention_mask=prompt.mask,
            video_coords=video.positions.expand(rows, -1, -1, -1),
            audio_coords=audio.positions.expand(rows, -1, -1, -1),
            use_cross_timestep=bool(self.transformer.config.cross_attn_mod),
            return_dict=False,
            **options,
        )
        return [stream.x - sigma * v.float() for stream, v in zip((video, audio), velocities, strict=True)]

    def _guidance(self, job: GenerationJob) -> VideoGuidance:
        return self._video_guidance or VideoGuidance(audio=_cfg(job), stg=0.0, modality=1.0, rescale=0.0)

    def _prompt_embeds(self, job: GenerationJob) -> PromptEmbeds:
        use_cfg = max(_cfg(job), self._guidance(job).audio) > 1
        rows = [
            self._prompts.get_or_create(text, partial(self._encode_prompt, text))
            for text in ["", job.request.prompt][not use_cfg :]
        ]
        return PromptEmbeds(*(torch.cat(tensors) for tensors in zip(*rows, strict=True)))

    def _encode_prompt(self, text: str) -> tuple[Tensor, ...]:
        """Returns one row of PromptEmbeds."""
        embeddings, mask, _, _ = self._pipeline.encode_prompt(
            [text], do_classifier_free_guidance=False, max_sequence_length=self._text_length, device=self._device
        )
        return self._pipeline.connectors(embeddings, mask, padding_side=self._pipeline.tokenizer_padding_side)

    def _sigmas(self, job: GenerationJob, tokens: int) -> Tensor:
        if job.inputs.draft is not None:
            return enhancing_levels(job.request.steps, self._enhance_noise)
        if self._distilled:
            return distilled_levels(job.request.steps)
        return scheduled_levels(self._pipeline.scheduler, job.request.steps, tokens)

    def _noise(self, stream: Stream, generator: torch.Generator, sigma: Tensor, draft: Tensor | None) -> None:
        """Adds noise of level `sigma` to all tokens that are not given."""
        noise = draw_noise(stream.x.shape, generator, self._device)
        if draft is not None:
            stream.x[:, : draft.shape[1]] = torch.where(
                stream.conditioning_mask[:, : draft.shape[1]] > 0, stream.clean_latents[:, : draft.shape[1]], draft
            )
        level = (1 - stream.conditioning_mask) * float(sigma)
        stream.x = noise * level + stream.x * (1 - level)

    def _enlarge_draft(self, draft: DraftLatents, shape: VideoShape) -> DraftLatents:
        """Returns the draft's latents in the shape of this video."""
        fits = draft.video.ndim == 5 and draft.video.shape[:3] == (1, self._video_latents.channels, shape.latents)
        if not fits or tuple(draft.audio.shape) != self._audio_latents.latent_shape(shape):
            raise JobError("the draft was made by another model: make it again")
        video = draft.video.to(self._device)
        if self._upsampler is not None:
            video = self._upsampler(video.to(self._upsampler.dtype)).float()
        if tuple(video.shape[2:]) != shape.grid:
            video = self._video_latents.reencode(video, shape)
        return DraftLatents(video, draft.audio.to(self._device))


def _load_upsampler(folder: Path, load_options: LoadOptions) -> Any:
    try:
        upsampler: Any = LTX2LatentUpsamplerModel.from_pretrained(
            folder, subfolder=_UPSAMPLER, dtype=load_options.dtype
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} can't be loaded: {error}") from error
    return upsampler.to(load_options.device)


def _audio_times(state: VideoState, time: Tensor) -> Tensor:
    """Returns (1, N), or (1, 1) without given tokens: the last bits depend on it, as in the stock pipeline."""
    if state.shape.lead == 0:
        return time.view(1, 1)
    return time * (1 - state.audio.conditioning_mask[..., 0])


def _cfg(job: GenerationJob) -> float:
    return 1.0 if job.request.guidance is None else job.request.guidance


def _apply_guidance(stream: Stream, cond: Tensor, weaker: Iterable[tuple[float, Tensor]], rescale: float) -> Tensor:
    """Returns the prediction for the prompt, (1, N, C), moved away from each weaker one by its scale."""
    result = cond
    for scale, prediction in weaker:
        result = result + scale * (cond - prediction)
    if rescale > 0:
        result = rescale_noise_cfg(result, cond, rescale)
    return torch.where(stream.conditioning_mask > 0, stream.clean_latents, result)
