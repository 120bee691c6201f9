"""Flux2: Klein (step-distilled, no guidance) and dev (embedded guidance); up to 10 reference pictures, any size.

Runs the components of diffusers' `Flux2KleinPipeline` and `Flux2Pipeline`: their methods for prompts, noise and
references are used as they are, their loop is replaced by the engine. A job that runs alone in float32 gets, bit by
bit, the stock pipeline's picture.

Tokens of a step: text (L: 512, as the pipelines pad it, or what the tokenizer knows), picture (N), references (M).
Position ids are (t, h, w, l): the picture at t = 0, reference k at t = 10 (k + 1), text along l. The transformer takes
one table of ids for the whole batch, so the grids of the picture and of all references are part of the key: equal
numbers of tokens are not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline, compute_empirical_mu
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.utils.logging import disable_progress_bar
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor

from deployments.contract.job import GenerationJob
from deployments.contract.model import Enlarge
from deployments.engine.backend import JobError
from deployments.families.base import CheckpointError, Commission, Placement
from deployments.families.canvas import Canvas, canvas_for
from deployments.families.enlarge import fitted
from deployments.families.pictures import Pixels, open_picture, stretch
from deployments.families.preview import LinearPreview
from deployments.families.shared_components import shared_components
from deployments.families.state import State, schedule

TOKEN = 16
"""Pixels per side of a token: the VAE takes 8, and its latents are packed 2 x 2."""
MAX_TEXT = 512
"""Text tokens, as the pipelines pad it."""
MAX_REFERENCES = 10
REFERENCE_PIXELS = 1024 * 1024
"""Larger references are scaled down to this, as the pipelines do."""
GUIDANCE = 4.0
"""The pipelines' default, for jobs that name none."""


class Flux2:
    def __init__(self, pipeline: Any, placement: Placement) -> None:
        """`pipeline` is a loaded `Flux2KleinPipeline` or `Flux2Pipeline`, on its device.

        Raises CheckpointError for a Klein that is not distilled.
        """
        if isinstance(pipeline, Flux2KleinPipeline) and not pipeline.config["is_distilled"]:
            raise CheckpointError(
                "a Klein base model takes two passes per step, which nothing here does; use a distilled one"
            )
        self.transformer: Any = pipeline.transformer
        self._pipeline: Any = pipeline
        self._guided = isinstance(pipeline, Flux2Pipeline)
        self._device = placement.device
        self._render_side = placement.render_side
        self._enlarge: Enlarge = placement.enlarge
        self._channels = int(self.transformer.config.in_channels)
        # Padding is attended and costs as much as words. Published tokenizers know longer texts than MAX_TEXT (or name
        # no limit: 1e30); a small checkpoint says in its tokenizer that it was made for shorter ones.
        words = getattr(pipeline.tokenizer, "tokenizer", pipeline.tokenizer)
        self._text_length = min(MAX_TEXT, int(words.model_max_length))
        with torch.inference_mode():
            self._preview = LinearPreview.fitted(self._decoded, self._channels, self._device)

    @classmethod
    def load(cls, folder: Path, placement: Placement) -> Self:
        disable_progress_bar()  # a bar is no use in a replica's log
        shared = shared_components(folder, placement.dtype)
        try:
            pipeline = DiffusionPipeline.from_pretrained(
                str(folder), dtype=placement.dtype, local_files_only=placement.local_only, **shared
            )
        except (OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(f"{folder}: {error}") from error
        return cls(pipeline.to(placement.device), placement)

    @torch.inference_mode()
    def encode(self, commissions: Sequence[Commission]) -> list[State | JobError]:
        if not commissions:
            return []
        texts, ids = self._pipeline.encode_prompt(
            [c.job.prompt for c in commissions], device=self._device, max_sequence_length=self._text_length
        )
        rows = texts.to(self.transformer.dtype).split(1)
        return [self._state(c, text, ids[0]) for c, text in zip(commissions, rows, strict=True)]

    @torch.inference_mode()
    def velocity(
        self, x: Tensor, t: Tensor, t_next: Tensor, per: dict[str, Tensor], shared: dict[str, Tensor]
    ) -> Tensor:
        dtype = self.transformer.dtype
        tokens = x.to(dtype)
        if "references" in per:
            tokens = torch.cat([tokens, per["references"]], dim=1)
        moved = self.transformer(
            hidden_states=tokens,
            timestep=t.to(dtype),
            guidance=per.get("guidance"),
            encoder_hidden_states=per["text"],
            txt_ids=shared["text_ids"],
            img_ids=shared["picture_ids"],
            return_dict=False,
        )
        return moved[0][:, : x.shape[1]].float()

    @torch.inference_mode()
    def finish(self, state: State) -> Pixels:
        rows, columns = self._canvas(state.job).crop
        decoded = self._decoded(_unpacked(state.x, state.grid))[..., rows, columns]
        pixels = (decoded[0] * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
        return np.ascontiguousarray(fitted(pixels, state.job.width, state.job.height, self._enlarge))

    @torch.inference_mode()
    def preview(self, state: State) -> Pixels | None:
        if state.v is None:
            return None
        # Along a straight path the velocity points from the noise to the picture, so this is where it would arrive.
        arrival = state.x - state.t[state.i] * state.v
        return self._preview.picture(_unpacked(arrival, state.grid), state.job.width, state.job.height)

    def _canvas(self, job: GenerationJob) -> Canvas:
        return canvas_for(job.width, job.height, TOKEN, self._render_side)

    def _decoded(self, latents: Tensor) -> Tensor:
        """Latents (1, C, h, w) to a picture (1, 3, 16h, 16w) in [0, 1], float32."""
        vae = self._pipeline.vae
        # Latents are whitened by the statistics of a batch norm that is never run as one.
        mean, variance = (v.view(1, -1, 1, 1).float() for v in (vae.bn.running_mean, vae.bn.running_var))
        scaled = latents * torch.sqrt(variance + vae.config.batch_norm_eps) + mean
        pixels = vae.decode(self._pipeline._unpatchify_latents(scaled).to(vae.dtype), return_dict=False)[0]
        return self._pipeline.image_processor.postprocess(pixels, output_type="pt").float()

    def _state(self, commission: Commission, text: Tensor, text_ids: Tensor) -> State | JobError:
        """`text` is (1, L, D), `text_ids` (L, 4)."""
        job, canvas = commission.job, self._canvas(commission.job)
        try:
            references = self._references(commission)
        except JobError as error:
            return error
        x, picture_ids = self._noise(job.seed, canvas)
        per = {"text": text}
        if self._guided:
            strength = GUIDANCE if job.guidance is None else job.guidance
            per["guidance"] = torch.tensor([strength], dtype=torch.float32, device=self._device)
        if references:
            tokens, ids = self._pipeline.prepare_image_latents(
                references, batch_size=1, generator=None, device=self._device, dtype=self._pipeline.vae.dtype
            )
            per["references"] = tokens.to(self.transformer.dtype)
            picture_ids = torch.cat([picture_ids, ids[0]])
        t, dt = schedule(self._pipeline.scheduler, job.steps, compute_empirical_mu(x.shape[1], job.steps))
        return State(
            job=job,
            key=(canvas.grid, text.shape[1], tuple(tuple(side // TOKEN for side in r.shape[-2:]) for r in references)),
            x=x,
            t=t,
            dt=dt,
            per=per,
            shared={"picture_ids": picture_ids, "text_ids": text_ids},
            grid=canvas.grid,
            frame=canvas.frame,
        )

    def _noise(self, seed: int, canvas: Canvas) -> tuple[Tensor, Tensor]:
        """Tokens (1, N, C) float32 and their ids (N, 4).

        Drawn on the CPU, so that a seed means the same noise on every device.
        """
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

    def _references(self, commission: Commission) -> list[Tensor]:
        """The references, (1, 3, height, width) in [-1, 1] each, sides whole tokens: a megapixel each at most.

        Where the pixels to render are given, each gets a canvas by the rule for what is painted.
        """
        count = len(commission.references)
        if count > MAX_REFERENCES:
            raise JobError(f"at most {MAX_REFERENCES} input pictures are possible")
        return [self._pixels(open_picture(data)) for data in commission.references]

    def _pixels(self, picture: Image.Image) -> Tensor:
        """What the pipelines make of a reference, with room for the narrow ones that they refuse."""
        if self._render_side is not None:
            picture = stretch(picture, canvas_for(*picture.size, TOKEN, self._render_side).size)
        processor = self._pipeline.image_processor
        picture = _widened(processor._resize_if_exceeds_area(_widened(picture), REFERENCE_PIXELS))
        width, height = (side // TOKEN * TOKEN for side in picture.size)
        return processor.preprocess(picture, height=height, width=width, resize_mode="crop")


def _widened(picture: Image.Image) -> Image.Image:
    """The picture itself, or stretched to a token per side where it is narrower."""
    return stretch(picture, (max(picture.height, TOKEN), max(picture.width, TOKEN)))


def _unpacked(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens (1, h x w, C) to (1, C, h, w)."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)
