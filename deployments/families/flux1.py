"""Flux1: text to image, Kontext (references), Fill (a mask) and Canny (edges); embedded guidance, any size.

Runs the components of diffusers' `FluxPipeline`, `FluxKontextPipeline`, `FluxFillPipeline` and `FluxControlPipeline`
in the engine's loop. A job that runs alone in float32 gets the stock pipeline's image bit by bit. The components of a
`FluxPriorReduxPipeline`, in a checkpoint of its own or in the folder `redux`, add image prompts.

Tokens of a step: text (512, or the tokenizer's maximum, and those of the image prompt), image (N), references (M).
Position ids are (image, row, column), all zero for text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from diffusers.pipelines.flux.pipeline_flux_prior_redux import FluxPriorReduxPipeline
from PIL import Image
from torch import Tensor

from deployments.backend import JobError
from deployments.checkpoint_files import read_index
from deployments.contract.model import REDUX
from deployments.families.canvas import Canvas
from deployments.families.conditioning import PreparedRequest
from deployments.families.flux import Flux
from deployments.families.flux1_conditions import (
    CHANNELS,
    CONDITIONS,
    MAX_REFERENCES,
    REFERENCES,
    Latents,
    ReaderInput,
    from_grid,
    grid_ids,
    to_tokens,
)
from deployments.families.packed.batch import StepInputs
from deployments.families.packed.transformers import PackedFlux1
from deployments.families.pipeline import LoadOptions, load_pipeline, prompt_length
from deployments.families.state import State, split_batch
from deployments.families.step import schedule
from deployments.images import Backdrop, Pixels, open_image

MAX_TEXT = 512
"""T5 tokens. Shorter prompts are padded, and the padding is attended, so all prompts of a model have equal length."""
MAX_POOLED = 77
"""CLIP tokens."""


class Flux1Prompt(NamedTuple):
    text: Tensor
    """T5 embeddings, (1, L, D)."""
    pooled: Tensor
    """Pooled CLIP embedding, (1, P)."""


TEXT_PARTS = ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
"""Components that encode prompts."""


class Flux1PromptEncoder:
    def __init__(self, pipeline: Any, load_options: LoadOptions) -> None:
        """`pipeline` has both tokenizers and text encoders, on its device."""
        self._pipeline = pipeline
        self._dtype, self._device = load_options.dtype, load_options.device

    def encode(self, prompts: Sequence[str]) -> list[Flux1Prompt]:
        """Encodes all prompts in one pass. Truncates those longer than the tokenizers' maximum."""
        t5_ids = self._ids(self._pipeline.tokenizer_2, prompts, MAX_TEXT)
        clip_ids = self._ids(self._pipeline.tokenizer, prompts, MAX_POOLED)
        texts = self._pipeline.text_encoder_2(t5_ids, output_hidden_states=False)[0].to(self._dtype)
        pooled = self._pipeline.text_encoder(clip_ids, output_hidden_states=False).pooler_output.to(self._dtype)
        return [Flux1Prompt(*pair) for pair in zip(split_batch(texts), split_batch(pooled), strict=True)]

    def _ids(self, tokenizer: Any, prompts: Sequence[str], max_length: int) -> Tensor:
        """Returns token ids (B, L), L being `max_length` or less."""
        length = prompt_length(tokenizer, max_length)
        inputs = tokenizer(list(prompts), padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        return inputs.input_ids.to(self._device)


class ImagePromptEncoder:
    def __init__(self, redux: Any | None, dtype: torch.dtype, device: torch.device) -> None:
        """`redux` is a `FluxPriorReduxPipeline` on `device`."""
        self._redux = redux
        self._dtype = dtype
        self._device = device

    def encode(self, image: Image.Image) -> Tensor:
        """Returns tokens (1, M, D) of the image's content, which follow those of a prompt. Raises JobError without a
        Redux."""
        if self._redux is None:
            raise JobError("this model takes no image prompt")
        features = self._redux.encode_image(image, self._device, 1)
        return self._redux.image_embedder(features).image_embeds.to(self._dtype)


NO_GUIDANCE = 1.0


def guided_steps(steps: int, interval: float | None) -> list[bool]:
    """Returns for each step whether guidance is applied. Raises JobError for an interval below 1.

    With interval n, step i is guided if floor(i / n) advances there: at i = 0, n, 2n, ..., rounded up (1.5 guides 0, 2,
    3, 5, 6, ...). 1 and None guide every step.
    """
    if interval is None:
        return [True] * steps
    if not interval >= 1:
        raise JobError("the guidance interval must be at least 1")
    return [i == 0 or math.floor(i / interval) > math.floor((i - 1) / interval) for i in range(steps)]


def guidance_per_step(steps: int, guidance: float, interval: float | None) -> Tensor:
    """Returns the guidance, (S,) float32; NO_GUIDANCE at steps that `interval` leaves out. Raises JobError."""
    return torch.tensor([guidance if guided else NO_GUIDANCE for guided in guided_steps(steps, interval)])


_INTERVALS = "_guidance_intervals"
"""Entry of a checkpoint's index. Diffusers ignores entries that begin with an underscore."""


@dataclass(eq=False, slots=True)
class Flux1State(State):
    backdrop: Backdrop | None = None
    """Image that the result is blended into. Not in `per`, as steps don't use it."""


class Flux1(Flux[Flux1Prompt]):
    text_parts: ClassVar[Sequence[str]] = TEXT_PARTS
    prompt_type = Flux1Prompt
    encoder_type = Flux1PromptEncoder
    packed_type = PackedFlux1
    max_references = MAX_REFERENCES

    def __init__(
        self, pipeline: Any, load_options: LoadOptions, redux: Any | None = None, *, guidance_intervals: bool = False
    ) -> None:
        """`pipeline` is one of `CONDITIONS`, `redux` a `FluxPriorReduxPipeline`, both loaded and on their device.
        `guidance_intervals`: the checkpoint was trained with some steps unguided."""
        self._scheduler: Any = pipeline.scheduler
        self._condition = CONDITIONS[type(pipeline).__name__]
        latents = Latents(pipeline.vae, load_options.device)
        super().__init__(
            pipeline,
            load_options,
            channels=4 * latents.channels,
            decode=lambda tokens: latents.decode(from_grid(tokens)),
        )
        self._latents = latents
        self._guidance_intervals = guidance_intervals
        self._guidance_embeds = bool(self.transformer.config.guidance_embeds)
        self._image_prompts = ImagePromptEncoder(redux, self.transformer.dtype, self._device)

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        redux_folder = load_options.redux or folder / REDUX
        redux = load_pipeline(redux_folder, load_options, FluxPriorReduxPipeline) if redux_folder.is_dir() else None
        absent = TEXT_PARTS if load_options.shared_encoder else ()
        intervals = bool(read_index(folder).get(_INTERVALS))
        return cls(
            load_pipeline(folder, load_options, without=absent), load_options, redux, guidance_intervals=intervals
        )

    @torch.inference_mode()
    def velocity(self, state: State, inputs: StepInputs) -> Tensor:
        dtype, per, ids = self.transformer.dtype, state.per, state.ids
        tokens = state.x.to(dtype)
        if CHANNELS in per:
            tokens = torch.cat([tokens, per[CHANNELS]], dim=2)
        if REFERENCES in per:
            tokens = torch.cat([tokens, per[REFERENCES]], dim=1)
        velocity = self.transformer(
            hidden_states=tokens,
            timestep=inputs.t.to(dtype),
            guidance=inputs.guidance,
            pooled_projections=per["pooled"],
            encoder_hidden_states=per["text"],
            txt_ids=ids["text_ids"],
            img_ids=ids["image_ids"],
            return_dict=False,
        )
        return velocity[0][:, : state.x.shape[1]].float()

    def finish(self, state: State) -> Pixels:
        pixels = super().finish(state)
        backdrop = state.backdrop if isinstance(state, Flux1State) else None
        return pixels if backdrop is None else backdrop.under(pixels)

    def _text_conditioning(self, prompt: Flux1Prompt) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return {"text": prompt.text, "pooled": prompt.pooled}, {"text_ids": self._text_ids(prompt.text)}

    def _text_ids(self, text: Tensor) -> Tensor:
        return torch.zeros(text.shape[1], 3, device=self._device)

    def _state(self, request: PreparedRequest, prompt: Flux1Prompt) -> State:
        self._check_inputs(request)
        job, canvas = request.job, self._canvas(request.job)
        text = prompt.text
        if request.image_prompt is not None:
            text = torch.cat([text, self._image_prompts.encode(open_image(request.image_prompt))], dim=1)
        t, dt = schedule(self._scheduler, job.request.steps, self._shift(canvas))
        strength = self._condition.guidance if job.request.guidance is None else job.request.guidance
        # Other checkpoints were distilled at a constant guidance: unguided steps would wash their images out.
        interval = job.request.guidance_interval if self._guidance_intervals else None
        guidance = guidance_per_step(job.request.steps, strength, interval)
        generator = torch.Generator("cpu").manual_seed(job.request.seed)
        conditioning = self._condition.read(
            ReaderInput(request, canvas, self._latents, self._references, generator, self._render_side)
        )
        dtype = self.transformer.dtype
        image_ids = torch.cat([grid_ids(*canvas.grid), *conditioning.ids])
        return Flux1State(
            job=job,
            x=to_tokens(conditioning.noise),
            t=t,
            dt=dt,
            per={
                "text": text,
                "pooled": prompt.pooled,
                **{name: rows.to(dtype) for name, rows in conditioning.per.items()},
            },
            ids={
                "image_ids": image_ids.to(self._device),
                "text_ids": self._text_ids(text),
            },
            grid=canvas.grid,
            frame=canvas.frame,
            guidance=guidance if self._guidance_embeds else None,
            backdrop=conditioning.backdrop,
        )

    def _check_inputs(self, request: PreparedRequest) -> None:
        """Raises JobError for an input that this model ignores."""
        inputs = {
            "references": bool(request.references),
            "mask": request.mask is not None,
            "control": request.control is not None,
        }
        names = {"references": "input images", "mask": "mask", "control": "control image"}
        for name in sorted(name for name in inputs if inputs[name] and name not in self._condition.takes):
            raise JobError(f"this model takes no {names[name]}")

    def _shift(self, canvas: Canvas) -> float:
        """Returns the logarithm of the schedule's shift: larger images spend more of their steps in the noise."""
        config = self._scheduler.config
        return calculate_shift(
            canvas.grid[0] * canvas.grid[1],
            config.get("base_image_seq_len", 256),
            config.get("max_image_seq_len", 4096),
            config.get("base_shift", 0.5),
            config.get("max_shift", 1.15),
        )
