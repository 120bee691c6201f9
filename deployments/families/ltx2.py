"""LTX-2: videos with sound, from text, keyframes, the end of another video, or a draft.

Runs the components of diffusers' `LTX2ConditionPipeline` with a loop of its own, so that a clip can wait, move and be
taken up elsewhere between any two steps. What that pipeline can make is, bit by bit, the same, but for the noise
levels of clips too large for its scheduler, and for keyframes of another size than the clip's, which are antialiased.
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
from deployments.contract.job import Clip, GenerationJob
from deployments.contract.model import VideoGuidance
from deployments.families.canvas import ClipShape, Scale, shape_of
from deployments.families.ltx2_latents import ClipPictures, ClipSound
from deployments.families.pipeline import LoadOptions, load_pipeline, prompt_length
from deployments.families.state import draw_noise, size_of
from deployments.families.vae import finite
from deployments.families.video_family import ClipInputs, ClipState, Draft, PromptEmbeds, Stream
from deployments.images import Pixels
from deployments.lru_cache import MB, ByteCache
from deployments.torch_process import wait_for
from deployments.video.writer import Sound

ENHANCING: Final = tuple(STAGE_2_DISTILLED_SIGMA_VALUES)
"""From where a draft is still seen through the noise."""


def scheduled_levels(scheduler: Any, steps: int, tokens: int) -> Tensor:
    """Sigmas (S+1,) as the stock pipeline derives them from the scheduler, falling from 1 to 0.

    Larger clips stay noisy for longer, up to the most tokens that the scheduler knows. The stock pipeline goes on
    beyond, until there are no steps between 1 and 0 any more: with 20 seconds in high definition there are none.
    """
    if steps == 1:  # some schedulers stretch the way between first and last: here there is none
        return torch.tensor([1.0, 0.0])
    own = type(scheduler).from_config(scheduler.config)
    config = scheduler.config
    most = config.get("max_image_seq_len", 4096)
    mu = calculate_shift(
        min(tokens, most),
        config.get("base_image_seq_len", 1024),
        most,
        config.get("base_shift", 0.95),
        config.get("max_shift", 2.05),
    )
    own.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu, device="cpu")
    return own.sigmas.float()


def distilled_levels(steps: int) -> Tensor:
    """The sigmas that step-distilled models know, (S+1,); of another number, as many in between."""
    return _resampled(DISTILLED_SIGMA_VALUES, steps)


def enhancing_levels(steps: int, noise: float = ENHANCING[0]) -> Tensor:
    """Those that a draft is enhanced with, from `noise` on."""
    return _resampled(ENHANCING, steps) * (noise / ENHANCING[0])


def _resampled(known: list[float] | tuple[float, ...], steps: int) -> Tensor:
    curve = [*known, 0.0]
    places = np.linspace(0, len(known), steps + 1)
    return torch.from_numpy(np.interp(places, np.arange(len(curve)), curve)).float()


MAX_TEXT = 1024
_SMALLEST_SIDE = 4
"""Tokens, of a draft where the side to render at is given."""
_UPSAMPLER = "latent_upsampler"
"""Folder of a checkpoint. Without it, a draft's frames are enlarged and encoded again."""


class Ltx2:
    def __init__(self, pipeline: Any, load_options: LoadOptions, upsampler: Any | None = None) -> None:
        """`pipeline` is a loaded `LTX2ConditionPipeline`, on its device, its vocoder in float32."""
        self.transformer: Any = pipeline.transformer
        self._pipeline = pipeline
        self._upsampler = upsampler
        self._device = load_options.device
        self._render_side = load_options.render_side
        self._distilled = load_options.distilled
        self._enhance_noise = load_options.enhance_noise
        self._video_guidance = load_options.video_guidance
        crf = load_options.keyframe_crf
        if crf is None:
            crf = resolve_default_image_crf(pipeline.text_encoder)
        self._pictures = ClipPictures(pipeline.vae, pipeline.transformer, load_options.device, crf)
        self._sound = ClipSound(pipeline.audio_vae, pipeline.vocoder, pipeline.transformer, load_options.device)
        self._text_length = prompt_length(pipeline.tokenizer, MAX_TEXT)
        self._prompts: ByteCache[str, tuple[Tensor, ...]] = ByteCache(load_options.caches.prompts_mb * MB, size_of)

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
        return Scale(self._pictures.space, self._pictures.time, self._sound.per_second)

    def shape(self, job: GenerationJob, lead: int) -> ClipShape:
        """A draft is rendered at half the side that others are, as long as that leaves something to be seen."""
        clip = _clip(job)
        side = self._render_side
        if side is not None and clip.draft:
            side = max(side // 2, min(side, _SMALLEST_SIDE * self.scale.space))
        return shape_of(job.width, job.height, lead=lead, frames=clip.frames, scale=self.scale, render_side=side)

    @torch.inference_mode()
    def encode(self, job: GenerationJob, inputs: ClipInputs) -> ClipState:
        """The clip before its first step. Raises JobError for a draft of another kind of model."""
        clip = _clip(job)
        shape = self.shape(job, 0 if inputs.lead is None else len(inputs.lead))
        generator = torch.Generator("cpu").manual_seed(job.seed)
        begun = self._enlarged(inputs.draft, shape) if inputs.draft is not None else None
        picture = self._pictures.stream(shape, inputs.lead, list(zip(clip.times, inputs.keyframes, strict=True)))
        sound = self._sound.stream(shape, inputs.lead_sound)
        sigmas = self._sigmas(job, picture.x.shape[1])
        self._noise(picture, generator, sigmas[0], None if begun is None else self._pictures.tokens(begun.picture))
        self._noise(sound, generator, sigmas[0], None if begun is None else self._sound.tokens(begun.sound))
        return ClipState(
            job=job,
            shape=shape,
            picture=picture,
            sound=sound,
            prompt=self._prompt_embeds(job),
            sigmas=sigmas,
            chunks=self._pictures.chunks(shape),
        )

    @torch.inference_mode()
    def step(self, state: ClipState) -> None:
        """One denoising step; all or nothing. Raises NotFinite, and what torch raises."""
        sigma, following = state.sigmas[state.i], state.sigmas[state.i + 1]
        picture, sound = self._denoised(state, sigma.to(self._device))
        # At every step, since what comes of it is kept for other attempts, which would go on from there.
        moved = [
            finite(stream.x + (following - sigma) * ((stream.x - denoised) / sigma))
            for stream, denoised in ((state.picture, picture), (state.sound, sound))
        ]
        if self._device.type == "cuda":
            wait_for(torch.cuda.current_stream(self._device))
        state.picture.x, state.sound.x = moved
        state.denoised = picture
        state.i += 1

    @torch.inference_mode()
    def frames(self, state: ClipState) -> Iterator[Pixels]:
        return self._pictures.decoded(state.shape, state.picture.x)

    @torch.inference_mode()
    def heard(self, state: ClipState) -> Sound:
        return self._sound.decoded(state.shape, state.sound.x)

    @torch.inference_mode()
    def still(self, state: ClipState) -> Pixels | None:
        return None if state.denoised is None else self._pictures.still(state.shape, state.denoised)

    def draft(self, state: ClipState) -> Draft:
        return Draft(self._pictures.latents(state.shape, state.picture.x), self._sound.latents(state.sound.x))

    def probe(self) -> Tensor:
        """One step of a tiny clip: what is wrong with it is wrong with the checkpoint, or with where it runs."""
        side = 2 * self.scale.space
        job = GenerationJob(
            id="probe",
            attempt=0,
            prompt="a probe",
            width=side,
            height=side,
            steps=1,
            seed=0,
            output_format="mp4",
            output_prefix="probe",
            clip=Clip(frames=1, checkpoint="probe"),
        )
        state = self.encode(job, ClipInputs())
        self.step(state)
        return state.picture.x

    def _denoised(self, state: ClipState, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Picture and sound without noise as guidance foresees them, (1, N, C) float32; what is given stays."""
        guidance, prompt = self._guidance(state.job), state.prompt
        alone = PromptEmbeds(prompt.for_picture[-1:], prompt.for_sound[-1:], prompt.mask[-1:])
        pictures, sounds = self._predicted(state, sigma, prompt)
        weaker_pictures, weaker_sounds = [], []
        if len(prompt.mask) == 2:
            weaker_pictures.append((_cfg(state.job) - 1, pictures[:1]))
            weaker_sounds.append((guidance.audio - 1, sounds[:1]))
        for scale, options in (
            (guidance.stg, {"spatio_temporal_guidance_blocks": list(guidance.stg_blocks)}),
            (guidance.modality - 1, {"isolate_modalities": True}),
        ):
            if scale > 0:
                picture, sound = self._predicted(state, sigma, alone, **options)
                weaker_pictures.append((scale, picture))
                weaker_sounds.append((scale, sound))
        return (
            _guided(state.picture, pictures[-1:], weaker_pictures, guidance.rescale),
            _guided(state.sound, sounds[-1:], weaker_sounds, guidance.rescale),
        )

    def _predicted(self, state: ClipState, sigma: Tensor, prompt: PromptEmbeds, **options: Any) -> list[Tensor]:
        """Picture and sound without noise as the transformer predicts them for each row of the prompt, (rows, N, C)."""
        picture, sound = state.picture, state.sound
        rows = len(prompt.mask)
        time = sigma * self.transformer.config.timestep_scale_multiplier
        velocities = self.transformer(
            hidden_states=picture.x.to(self.transformer.dtype).expand(rows, -1, -1),
            audio_hidden_states=sound.x.to(self.transformer.dtype).expand(rows, -1, -1),
            encoder_hidden_states=prompt.for_picture,
            audio_encoder_hidden_states=prompt.for_sound,
            timestep=(time * (1 - picture.known[..., 0])).expand(rows, -1),
            audio_timestep=_sound_times(state, time).expand(rows, -1),
            sigma=time.expand(rows),
            audio_sigma=time.expand(rows),
            encoder_attention_mask=prompt.mask,
            audio_encoder_attention_mask=prompt.mask,
            video_coords=picture.places.expand(rows, -1, -1, -1),
            audio_coords=sound.places.expand(rows, -1, -1, -1),
            use_cross_timestep=bool(self.transformer.config.cross_attn_mod),
            return_dict=False,
            **options,
        )
        return [stream.x - sigma * v.float() for stream, v in zip((picture, sound), velocities, strict=True)]

    def _guidance(self, job: GenerationJob) -> VideoGuidance:
        return self._video_guidance or VideoGuidance(audio=_cfg(job), stg=0.0, modality=1.0, rescale=0.0)

    def _prompt_embeds(self, job: GenerationJob) -> PromptEmbeds:
        guided = max(_cfg(job), self._guidance(job).audio) > 1
        rows = [self._prompts.made(text, partial(self._encoded, text)) for text in ["", job.prompt][not guided :]]
        return PromptEmbeds(*(torch.cat(tensors) for tensors in zip(*rows, strict=True)))

    def _encoded(self, text: str) -> tuple[Tensor, ...]:
        """One row of PromptEmbeds."""
        embeddings, mask, _, _ = self._pipeline.encode_prompt(
            [text], do_classifier_free_guidance=False, max_sequence_length=self._text_length, device=self._device
        )
        return self._pipeline.connectors(embeddings, mask, padding_side=self._pipeline.tokenizer_padding_side)

    def _sigmas(self, job: GenerationJob, tokens: int) -> Tensor:
        if _clip(job).enhance is not None:
            return enhancing_levels(job.steps, self._enhance_noise)
        if self._distilled:
            return distilled_levels(job.steps)
        return scheduled_levels(self._pipeline.scheduler, job.steps, tokens)

    def _noise(self, stream: Stream, generator: torch.Generator, sigma: Tensor, begun: Tensor | None) -> None:
        """Puts noise of level `sigma` over what is not given."""
        noise = draw_noise(stream.x.shape, generator, self._device)
        if begun is not None:
            stream.x[:, : begun.shape[1]] = torch.where(
                stream.known[:, : begun.shape[1]] > 0, stream.given[:, : begun.shape[1]], begun
            )
        level = (1 - stream.known) * float(sigma)
        stream.x = noise * level + stream.x * (1 - level)

    def _enlarged(self, draft: Draft, shape: ClipShape) -> Draft:
        """The draft's picture in the shape of this clip."""
        fits = draft.picture.ndim == 5 and draft.picture.shape[:3] == (1, self._pictures.channels, shape.latents)
        if not fits or tuple(draft.sound.shape) != self._sound.latent_shape(shape):
            raise JobError("the draft was made by another model: make it again")
        picture = draft.picture.to(self._device)
        if self._upsampler is not None:
            picture = self._upsampler(picture.to(self._upsampler.dtype)).float()
        if tuple(picture.shape[2:]) != shape.grid:
            picture = self._pictures.redrawn(picture, shape)
        return Draft(picture, draft.sound.to(self._device))


def _load_upsampler(folder: Path, load_options: LoadOptions) -> Any:
    try:
        upsampler: Any = LTX2LatentUpsamplerModel.from_pretrained(
            folder, subfolder=_UPSAMPLER, dtype=load_options.dtype
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} can't be loaded: {error}") from error
    return upsampler.to(load_options.device)


def _clip(job: GenerationJob) -> Clip:
    if job.clip is None:
        raise JobError("this model makes videos, not pictures")
    return job.clip


def _sound_times(state: ClipState, time: Tensor) -> Tensor:
    """(1, N), or (1, 1) where none can be known: the last bits depend on it, and the stock pipeline has it so."""
    if state.shape.lead == 0:
        return time.view(1, 1)
    return time * (1 - state.sound.known[..., 0])


def _cfg(job: GenerationJob) -> float:
    return 1.0 if job.guidance is None else job.guidance


def _guided(stream: Stream, prompted: Tensor, weaker: Iterable[tuple[float, Tensor]], rescale: float) -> Tensor:
    """The prediction for the prompt, (1, N, C), moved away from each of the weaker ones by its scale."""
    guided = prompted
    for scale, prediction in weaker:
        guided = guided + scale * (prompted - prediction)
    if rescale > 0:
        guided = rescale_noise_cfg(guided, prompted, rescale)
    return torch.where(stream.known > 0, stream.given, guided)
