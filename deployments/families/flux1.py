"""Flux1: text to image, Kontext (references), Fill (a mask) and Canny (edges); embedded guidance, any size.

Runs the components of diffusers' `FluxPipeline`, `FluxKontextPipeline`, `FluxFillPipeline` and `FluxControlPipeline`
in the engine's loop. A job that runs alone in float32 gets, bit by bit, the stock pipeline's picture. The
components of a `FluxPriorReduxPipeline`, of a checkpoint of its own or in the folder `redux`, make it take image
prompts.

Tokens of a step: text (512 or what the tokenizer knows, and the image prompt's), picture (N), references (M). Position
ids are (picture, row, column), all zero for text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from diffusers.pipelines.flux.pipeline_flux_prior_redux import FluxPriorReduxPipeline
from torch import Tensor

from deployments.checkpoint_files import index_of
from deployments.contract.checkpoint import REDUX
from deployments.engine.backend import JobError
from deployments.families import autoencoder
from deployments.families.canvas import Canvas
from deployments.families.flux import Flux
from deployments.families.flux1_conditions import CHANNELS, CONDITIONS, MAX_REFERENCES, REFERENCES, Reading
from deployments.families.flux1_guidance import guidance_of_steps
from deployments.families.flux1_latents import Latents, from_grid, grid_ids, to_tokens
from deployments.families.flux1_prompts import TEXT_PARTS, EncodedPrompt, Flux1PromptEncoder, ImagePromptEncoder
from deployments.families.moment import Moment
from deployments.families.packed.flux1 import PackedFlux1
from deployments.families.pipeline import load_pipeline
from deployments.families.placement import Placement
from deployments.families.prepared_request import PreparedRequest
from deployments.families.references import References
from deployments.families.schedule import schedule
from deployments.families.state import State
from deployments.pictures.backdrop import Backdrop
from deployments.pictures.pixels import Pixels, open_picture

_INTERVALS = "_guidance_intervals"
"""Of a checkpoint's index. Diffusers passes over entries that begin with an underscore."""


@dataclass(eq=False, slots=True)
class Flux1State(State):
    backdrop: Backdrop | None = None
    """What the finished picture is laid over. No part of a step, so not in `per`."""


class Flux1(Flux[EncodedPrompt]):
    text_parts: ClassVar[Sequence[str]] = TEXT_PARTS

    def __init__(
        self, pipeline: Any, placement: Placement, redux: Any | None = None, *, guidance_intervals: bool = False
    ) -> None:
        """`pipeline` is one of `CONDITIONS`, `redux` a `FluxPriorReduxPipeline`; both loaded and on their device.
        `guidance_intervals`: the checkpoint was trained for steps without guidance between others."""
        self._scheduler: Any = pipeline.scheduler
        self._condition = CONDITIONS[type(pipeline).__name__]
        autoencoder.place(pipeline.vae, placement)
        latents = Latents(pipeline.vae, placement.device)
        super().__init__(
            pipeline.transformer,
            PackedFlux1,
            placement,
            channels=4 * latents.channels,
            references=References(MAX_REFERENCES, placement.caches),
            decode=lambda tokens: latents.decode(from_grid(tokens)),
            prompts=None if placement.shared_encoder else _encoder_of(pipeline, placement),
        )
        self._latents = latents
        self._guidance_intervals = guidance_intervals
        self._guided = bool(self.transformer.config.guidance_embeds)
        self._image_prompts = ImagePromptEncoder(redux, self.transformer.dtype, self._device)

    @classmethod
    def load(cls, folder: Path, placement: Placement) -> Self:
        place = placement.redux or folder / REDUX
        redux = load_pipeline(place, placement, FluxPriorReduxPipeline) if place.is_dir() else None
        absent = TEXT_PARTS if placement.shared_encoder else ()
        intervals = bool(index_of(folder).get(_INTERVALS))
        return cls(load_pipeline(folder, placement, without=absent), placement, redux, guidance_intervals=intervals)

    @classmethod
    def prompt_encoder(cls, folder: Path, placement: Placement) -> Flux1PromptEncoder:
        return _encoder_of(load_pipeline(folder, placement, without=("transformer", "vae")), placement)

    @torch.inference_mode()
    def velocity(self, state: State, moment: Moment) -> Tensor:
        dtype, per, ids = self.transformer.dtype, state.per, state.ids
        tokens = state.x.to(dtype)
        if CHANNELS in per:
            tokens = torch.cat([tokens, per[CHANNELS]], dim=2)
        if REFERENCES in per:
            tokens = torch.cat([tokens, per[REFERENCES]], dim=1)
        moved = self.transformer(
            hidden_states=tokens,
            timestep=moment.t.to(dtype),
            guidance=moment.guidance,
            pooled_projections=per["pooled"],
            encoder_hidden_states=per["text"],
            txt_ids=ids["text_ids"],
            img_ids=ids["picture_ids"],
            return_dict=False,
        )
        return moved[0][:, : state.x.shape[1]].float()

    def finish(self, state: State) -> Pixels:
        drawn = super().finish(state)
        backdrop = state.backdrop if isinstance(state, Flux1State) else None
        return drawn if backdrop is None else backdrop.under(drawn)

    @classmethod
    def _encoded(cls, tensors: Sequence[Tensor]) -> EncodedPrompt:
        return EncodedPrompt(*tensors)

    def _worded(self, prompt: EncodedPrompt) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return {"text": prompt.text, "pooled": prompt.pooled}, {"text_ids": self._text_ids(prompt.text)}

    def _text_ids(self, text: Tensor) -> Tensor:
        return torch.zeros(text.shape[1], 3, device=self._device)

    def _state(self, request: PreparedRequest, prompt: EncodedPrompt) -> State:
        self._refuse(request)
        job, canvas = request.job, self._canvas(request.job)
        text = prompt.text
        if request.image_prompt is not None:
            text = torch.cat([text, self._image_prompts.encode(open_picture(request.image_prompt))], dim=1)
        t, dt = schedule(self._scheduler, job.steps, self._shift(canvas))
        strength = self._condition.guidance if job.guidance is None else job.guidance
        # Others were distilled at a constant guidance: without it at some steps, their images are washed out.
        interval = job.guidance_interval if self._guidance_intervals else None
        guidance = guidance_of_steps(job.steps, strength, interval)
        generator = torch.Generator("cpu").manual_seed(job.seed)
        read = self._condition.read(
            Reading(request, canvas, self._latents, self._references, generator, self._render_side)
        )
        dtype = self.transformer.dtype
        picture_ids = torch.cat([grid_ids(*canvas.grid), *read.ids])
        return Flux1State(
            job=job,
            x=to_tokens(read.noise),
            t=t,
            dt=dt,
            per={
                "text": text,
                "pooled": prompt.pooled,
                **{name: rows.to(dtype) for name, rows in read.per.items()},
            },
            ids={
                "picture_ids": picture_ids.to(self._device),
                "text_ids": self._text_ids(text),
            },
            grid=canvas.grid,
            frame=canvas.frame,
            guidance=guidance if self._guided else None,
            backdrop=read.backdrop,
        )

    def _refuse(self, request: PreparedRequest) -> None:
        """JobError for an input that this model would not look at."""
        given = {
            "references": bool(request.references),
            "mask": request.mask is not None,
            "control": request.control is not None,
        }
        names = {"references": "input pictures", "mask": "mask", "control": "control picture"}
        for name in sorted(name for name in given if given[name] and name not in self._condition.takes):
            raise JobError(f"this model takes no {names[name]}")

    def _shift(self, canvas: Canvas) -> float:
        """The logarithm of the schedule's shift: pictures of more tokens spend more of their steps in the noise."""
        config = self._scheduler.config
        return calculate_shift(
            canvas.grid[0] * canvas.grid[1],
            config.get("base_image_seq_len", 256),
            config.get("max_image_seq_len", 4096),
            config.get("base_shift", 0.5),
            config.get("max_shift", 1.15),
        )


def _encoder_of(pipeline: Any, placement: Placement) -> Flux1PromptEncoder:
    return Flux1PromptEncoder(pipeline, placement.dtype, placement.device)
