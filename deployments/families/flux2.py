"""Flux2: Klein (step-distilled, no guidance) and dev (embedded guidance); up to 10 reference images, any size.

Runs the components of diffusers' `Flux2KleinPipeline` and `Flux2Pipeline`: uses their methods for prompts, noise and
references, and replaces their loop by the engine. A job that runs alone in float32 gets the stock pipeline's image bit
by bit.

Tokens of a step: text (L: 512, as the pipelines pad it, or the tokenizer's maximum), image (N), references (M).
Position ids are (t, h, w, l): the image at t = 0, reference k at t = 10 (k + 1), text along l.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline, compute_empirical_mu
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from PIL import Image
from torch import Tensor

from deployments.checkpoint_files import CheckpointError
from deployments.families.canvas import Canvas, canvas_for
from deployments.families.conditioning import PreparedRequest, trim_language_model
from deployments.families.flux import TOKEN, Flux
from deployments.families.packed.batch import StepInputs
from deployments.families.packed.transformers import PackedFlux2
from deployments.families.pipeline import LoadOptions, load_pipeline, prompt_length
from deployments.families.state import State, split_batch
from deployments.families.step import schedule
from deployments.images import stretch

MAX_TEXT = 512
"""Text tokens that the pipelines pad prompts to."""
TEXT_PARTS = ("text_encoder", "tokenizer")
"""Components that encode prompts."""


class Flux2Prompt(NamedTuple):
    text: Tensor
    """(1, L, D)."""
    ids: Tensor
    """Positions, (L, 4)."""


class Flux2PromptEncoder:
    def __init__(self, pipeline: Any, load_options: LoadOptions) -> None:
        """`pipeline` is a `Flux2KleinPipeline` or `Flux2Pipeline` with its text components, on its device."""
        self._pipeline = pipeline
        self._dtype, self._device = load_options.dtype, load_options.device
        [*_, last] = signature(pipeline.encode_prompt).parameters["text_encoder_out_layers"].default
        trim_language_model(pipeline.text_encoder, last)
        self._length = prompt_length(getattr(pipeline.tokenizer, "tokenizer", pipeline.tokenizer), MAX_TEXT)

    def encode(self, prompts: Sequence[str]) -> list[Flux2Prompt]:
        texts, ids = self._pipeline.encode_prompt(list(prompts), device=self._device, max_sequence_length=self._length)
        return [Flux2Prompt(text, ids[0]) for text in split_batch(texts.to(self._dtype))]


MAX_REFERENCES = 10
REFERENCE_PIXELS = 1024 * 1024
"""Pixels that larger references are scaled down to, as the pipelines do."""
GUIDANCE = 4.0
"""Default of the pipelines."""


class EncodedReference(NamedTuple):
    tokens: Tensor
    """(1, M, C)."""
    ids: Tensor
    """Positions, (M, 4), as the first reference of a job."""


class Flux2(Flux[Flux2Prompt]):
    text_parts: ClassVar[Sequence[str]] = TEXT_PARTS
    prompt_type = Flux2Prompt
    encoder_type = Flux2PromptEncoder
    packed_type = PackedFlux2
    max_references = MAX_REFERENCES

    def __init__(self, pipeline: Any, load_options: LoadOptions) -> None:
        """`pipeline` is a loaded `Flux2KleinPipeline` or `Flux2Pipeline`, on its device.

        Raises CheckpointError for a Klein that neither is distilled nor has CFG.
        """
        base = isinstance(pipeline, Flux2KleinPipeline) and not pipeline.config["is_distilled"]
        if base and load_options.config.cfg is None:
            raise CheckpointError("a Klein base model needs cfg (docs/settings.md); or use a distilled one")
        self._pipeline: Any = pipeline
        self._guidance_embeds = isinstance(pipeline, Flux2Pipeline)
        channels = int(pipeline.transformer.config.in_channels)
        super().__init__(pipeline, load_options, channels=channels, decode=partial(_decode, pipeline))

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        return cls(
            load_pipeline(folder, load_options, without=TEXT_PARTS if load_options.shared_encoder else ()), load_options
        )

    @torch.inference_mode()
    def velocity(self, state: State, inputs: StepInputs) -> Tensor:
        dtype, per, ids = self.transformer.dtype, state.per, state.ids
        tokens = state.x.to(dtype)
        if "references" in per:
            tokens = torch.cat([tokens, per["references"]], dim=1)
        velocity = self.transformer(
            hidden_states=tokens,
            timestep=inputs.t.to(dtype),
            guidance=inputs.guidance,
            encoder_hidden_states=per["text"],
            txt_ids=ids["text_ids"],
            img_ids=ids["image_ids"],
            return_dict=False,
        )
        return velocity[0][:, : state.x.shape[1]].float()

    def _text_conditioning(self, prompt: Flux2Prompt) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return {"text": prompt.text}, {"text_ids": prompt.ids}

    def _state(self, request: PreparedRequest, prompt: Flux2Prompt) -> State:
        job, canvas = request.job, self._canvas(request.job)
        references = self._references.encode(request, self._encode_reference)
        x, image_ids = self._noise(job.request.seed, canvas)
        per, ids = self._text_conditioning(prompt)
        strength = GUIDANCE if job.request.guidance is None else job.request.guidance
        if references:
            per["references"] = torch.cat([tokens for tokens, _ in references], dim=1)
            pairs = enumerate((reference.ids for reference in references), 1)
            reference_ids = (each * torch.tensor([k, 1, 1, 1], device=each.device) for k, each in pairs)
            image_ids = torch.cat([image_ids, *reference_ids])
        t, dt = schedule(
            self._pipeline.scheduler, job.request.steps, compute_empirical_mu(x.shape[1], job.request.steps)
        )
        return State(
            job=job,
            x=x,
            t=t,
            dt=dt,
            per=per,
            ids={"image_ids": image_ids, **ids},
            guidance=torch.full((job.request.steps,), strength, dtype=torch.float32) if self._guidance_embeds else None,
            grid=canvas.grid,
            frame=canvas.frame,
        )

    def _noise(self, seed: int, canvas: Canvas) -> tuple[Tensor, Tensor]:
        """Returns noise (1, N, C) float32 and its ids (N, 4). Drawn on the CPU, so that a seed means the same noise on
        every device."""
        x, ids = self._pipeline.prepare_latents(
            batch_size=1,
            num_latents_channels=self._channels // 4,
            height=canvas.size[0],
            width=canvas.size[1],
            dtype=torch.float32,
            device=self._device,
            generator=torch.Generator("cpu").manual_seed(seed),
        )
        return x, ids[0]

    def _encode_reference(self, image: Image.Image, solo: bool) -> EncodedReference:
        tokens, ids = self._pipeline.prepare_image_latents(
            [self._pixels(image)], batch_size=1, generator=None, device=self._device, dtype=self._pipeline.vae.dtype
        )
        return EncodedReference(tokens.to(self.transformer.dtype), ids[0])

    def _pixels(self, image: Image.Image) -> Tensor:
        """Returns a reference, (1, 3, height, width) in [-1, 1], of whole tokens and a megapixel at most.

        Resizes like the pipelines, but also accepts narrow images, which they refuse. With `render_side`, resizes to a
        canvas like the new image.
        """
        if self._render_side is not None:
            image = stretch(image, canvas_for(*image.size, TOKEN, self._render_side).size)
        processor = self._pipeline.image_processor
        image = _widen(processor._resize_if_exceeds_area(_widen(image), REFERENCE_PIXELS))
        width, height = (side // TOKEN * TOKEN for side in image.size)
        return processor.preprocess(image, height=height, width=width, resize_mode="crop")


def _decode(pipeline: Any, latents: Tensor) -> Tensor:
    """Decodes latents (1, C, h, w) to an image (1, 3, 16h, 16w) in [0, 1], float32."""
    vae = pipeline.vae
    # Latents are whitened with the statistics of a batch norm.
    mean, variance = (v.view(1, -1, 1, 1).float() for v in (vae.bn.running_mean, vae.bn.running_var))
    raw = latents * torch.sqrt(variance + vae.config.batch_norm_eps) + mean
    pixels = vae.decode(pipeline._unpatchify_latents(raw).to(vae.dtype), return_dict=False)[0]
    return pipeline.image_processor.postprocess(pixels, output_type="pt").float()


def _widen(image: Image.Image) -> Image.Image:
    """Stretches a side shorter than a token to one."""
    return stretch(image, (max(image.height, TOKEN), max(image.width, TOKEN)))


@dataclass(eq=False, slots=True)
class KVState(State):
    cache: Any = None
    """Keys and values of the references, from the first step on: a `Flux2KVCache`."""


class Flux2KV(Flux2):
    @torch.inference_mode()
    def velocity(self, state: State, inputs: StepInputs) -> Tensor:
        if not isinstance(state, KVState):
            return super().velocity(state, inputs)
        dtype, per, ids, count = self.transformer.dtype, state.per, state.ids, state.x.shape[1]
        arguments: dict[str, Any] = {
            "timestep": inputs.t.to(dtype),
            "guidance": None,
            "encoder_hidden_states": per["text"],
            "txt_ids": ids["text_ids"],
            "return_dict": False,
        }
        image_ids, reference_ids = ids["image_ids"].split([count, len(ids["image_ids"]) - count])
        if state.i > 0:
            [velocity] = self.transformer(
                hidden_states=state.x.to(dtype),
                img_ids=image_ids,
                kv_cache=state.cache,
                kv_cache_mode="cached",
                **arguments,
            )
            return velocity.float()
        velocity, state.cache = self.transformer(
            hidden_states=torch.cat([per["references"], state.x], dim=1).to(dtype),
            img_ids=torch.cat([reference_ids, image_ids]),
            kv_cache_mode="extract",
            num_ref_tokens=len(reference_ids),
            **arguments,
        )
        return velocity.float()

    @torch.inference_mode()
    def packed_velocity(self, x: Tensor, states: Sequence[State], inputs: StepInputs) -> Tensor:
        if not any(isinstance(state, KVState) for state in states):
            return super().packed_velocity(x, states, inputs)
        velocities = []
        for k, state in enumerate(states):
            with self._packed_forward.with_adapter(state.adapter):
                velocities.append(self.velocity(state, StepInputs(inputs.t[k : k + 1], inputs.t_next[k : k + 1])))
        return torch.cat(velocities, dim=1)

    def _state(self, request: PreparedRequest, prompt: Flux2Prompt) -> State:
        state = super()._state(request, prompt)
        if "references" not in state.per:
            return state
        return KVState(**{each.name: getattr(state, each.name) for each in fields(state)})
