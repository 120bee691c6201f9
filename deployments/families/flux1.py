"""Flux1: text to image, Kontext (references), Fill (a mask) and Canny (edges); embedded guidance, any size.

Runs the components of diffusers' `FluxPipeline`, `FluxKontextPipeline`, `FluxFillPipeline` and `FluxControlPipeline`
in the engine's loop. A job that runs alone in float32 gets, bit by bit, the stock pipeline's picture. A folder `redux`
inside the checkpoint, with the components of a `FluxPriorReduxPipeline`, makes it take image prompts.

Tokens of a step: text (512 or what the tokenizer knows, and the image prompt's), picture (N), references (M). Position
ids are (picture, row, column), all zero for text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from diffusers.pipelines.flux.pipeline_flux_prior_redux import FluxPriorReduxPipeline
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.utils.logging import disable_progress_bar
from torch import Tensor

from deployments.contract.job import GenerationJob
from deployments.contract.model import Enlarge
from deployments.engine.backend import JobError
from deployments.families.backdrop import Backdrop
from deployments.families.base import CheckpointError, Commission, Placement
from deployments.families.canvas import Canvas, canvas_for
from deployments.families.enlarge import fitted
from deployments.families.flux1_conditions import CHANNELS, CONDITIONS, TOKENS
from deployments.families.flux1_guidance import guidance_at, guidance_table
from deployments.families.flux1_latents import TOKEN, Latents, from_grid, grid_ids, to_grid, to_tokens
from deployments.families.flux1_prompts import Prompts
from deployments.families.pictures import Pixels, open_picture
from deployments.families.preview import LinearPreview
from deployments.families.shared_components import shared_components
from deployments.families.state import State, schedule

REDUX = "redux"
"""The folder of a checkpoint that holds what image prompts are read with."""


@dataclass(eq=False, slots=True)
class Flux1State(State):
    backdrop: Backdrop | None = None
    """What the finished picture is laid over. No part of a step, so not in `per`."""


class Flux1:
    def __init__(self, pipeline: Any, placement: Placement, redux: Any | None = None) -> None:
        """`pipeline` is one of `CONDITIONS`, `redux` a `FluxPriorReduxPipeline`; both loaded and on their device."""
        self.transformer: Any = pipeline.transformer
        self._scheduler: Any = pipeline.scheduler
        self._condition = CONDITIONS[type(pipeline).__name__]
        self._device = placement.device
        self._render_side = placement.render_side
        self._enlarge: Enlarge = placement.enlarge
        self._guided = bool(self.transformer.config.guidance_embeds)
        self._latents = Latents(pipeline.vae, self._device)
        self._prompts = Prompts(pipeline, redux, self.transformer.dtype, self._device)
        with torch.inference_mode():
            self._preview = LinearPreview.fitted(self._decoded, 4 * self._latents.channels, self._device)

    @classmethod
    def load(cls, folder: Path, placement: Placement) -> Self:
        disable_progress_bar()  # a bar is no use in a replica's log
        options: Any = {"dtype": placement.dtype, "local_files_only": placement.local_only}
        shared = shared_components(folder, placement.dtype)
        try:
            pipeline = DiffusionPipeline.from_pretrained(str(folder), **shared, **options).to(placement.device)
            redux = None
            if (folder / REDUX).is_dir():
                redux = FluxPriorReduxPipeline.from_pretrained(str(folder / REDUX), **options).to(placement.device)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder}: {error}") from error
        return cls(pipeline, placement, redux)

    @torch.inference_mode()
    def encode(self, commissions: Sequence[Commission]) -> list[State | JobError]:
        texts = self._prompts.texts([c.job.prompt for c in commissions])
        return [self._state(c, *text) for c, text in zip(commissions, texts, strict=True)]

    @torch.inference_mode()
    def velocity(
        self, x: Tensor, t: Tensor, t_next: Tensor, per: dict[str, Tensor], shared: dict[str, Tensor]
    ) -> Tensor:
        dtype = self.transformer.dtype
        tokens = x.to(dtype)
        if CHANNELS in per:
            tokens = torch.cat([tokens, per[CHANNELS]], dim=2)
        if TOKENS in per:
            tokens = torch.cat([tokens, per[TOKENS]], dim=1)
        moved = self.transformer(
            hidden_states=tokens,
            timestep=t.to(dtype),
            guidance=guidance_at(t, per["guidance"]) if self._guided else None,
            pooled_projections=per["gist"],
            encoder_hidden_states=per["text"],
            txt_ids=shared["text_ids"],
            img_ids=shared["picture_ids"],
            return_dict=False,
        )
        return moved[0][:, : x.shape[1]].float()

    @torch.inference_mode()
    def finish(self, state: State) -> Pixels:
        job, canvas = state.job, self._canvas(state.job)
        rows, columns = canvas.crop
        decoded = self._decoded(to_grid(state.x, state.grid))[..., rows, columns]
        pixels = (decoded[0] * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
        drawn = np.ascontiguousarray(fitted(pixels, job.width, job.height, self._enlarge))
        backdrop = state.backdrop if isinstance(state, Flux1State) else None
        return drawn if backdrop is None else backdrop.under(drawn)

    @torch.inference_mode()
    def preview(self, state: State) -> Pixels | None:
        if state.v is None:
            return None
        # Along a straight path the velocity points from the noise to the picture, so this is where it would arrive.
        arrival = state.x - state.t[state.i] * state.v
        return self._preview.picture(to_grid(arrival, state.grid), state.job.width, state.job.height)

    def _canvas(self, job: GenerationJob) -> Canvas:
        return canvas_for(job.width, job.height, TOKEN, self._render_side)

    def _decoded(self, tokens: Tensor) -> Tensor:
        """Tokens (1, 4C, rows, columns) to a picture (1, 3, 16 rows, 16 columns) in [0, 1], float32."""
        return self._latents.decode(from_grid(tokens))

    def _state(self, commission: Commission, text: Tensor, gist: Tensor) -> State | JobError:
        """`text` (1, L, D) and `gist` (1, P) are the prompt's."""
        job, canvas = commission.job, self._canvas(commission.job)
        t, dt = schedule(self._scheduler, job.steps, self._shift(canvas))
        try:
            self._refuse(commission)
            if commission.image_prompt is not None:
                text = torch.cat([text, self._prompts.picture(open_picture(commission.image_prompt))], dim=1)
            strength = self._condition.guidance if job.guidance is None else job.guidance
            guidance = guidance_table(t, strength, job.guidance_interval).to(self._device)
            generator = torch.Generator("cpu").manual_seed(job.seed)
            read = self._condition.read(commission, canvas, self._latents, generator, self._render_side)
        except JobError as error:
            return error
        dtype = self.transformer.dtype
        picture_ids = torch.cat([grid_ids(*canvas.grid), *read.ids])
        return Flux1State(
            job=job,
            key=(canvas.grid, text.shape[1], guidance.shape[2], read.layout),
            x=to_tokens(read.noise),
            t=t,
            dt=dt,
            per={
                "text": text,
                "gist": gist,
                "guidance": guidance,
                **{name: rows.to(dtype) for name, rows in read.per.items()},
            },
            shared={
                "picture_ids": picture_ids.to(self._device),
                "text_ids": torch.zeros(text.shape[1], 3, device=self._device),
            },
            grid=canvas.grid,
            frame=canvas.frame,
            backdrop=read.backdrop,
        )

    def _refuse(self, commission: Commission) -> None:
        """JobError for an input that this model would not look at."""
        given = {
            "references": bool(commission.references),
            "mask": commission.mask is not None,
            "control": commission.control is not None,
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
