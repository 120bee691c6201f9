"""Flux3, step-distilled: up to 10 reference pictures, no guidance, any size.

Runs the components of diffusers' `Flux3DistilledModularPipeline`: its blocks for reading references and for decoding
are used as they are, its loop is replaced by the engine. A job that runs alone in float32 gets, bit by bit, the stock
pipeline's picture.

Tokens of a step: text (L, a multiple of 80), picture (N), references (M). Position ids are (t, h, w, l) with h and w
halved: the picture at l = 0, reference k at l = -k, text along l. Padded text is attended, so L is part of the key.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from diffusers.modular_pipelines.flux3.encoders import Flux3VaeEncoderStep
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
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
TEXT_MULTIPLE = 80
MAX_TEXT = 8192
TEXT_STATES = (4, 8, 12, 16, 20, 24, 28, 32)
"""Hidden states of the text encoder that are stacked, as the pipeline does by default."""
MAX_REFERENCES = 10
POSITION_SCALE = 0.5


class Flux3:
    def __init__(self, pipeline: Any, placement: Placement) -> None:
        """`pipeline` is a loaded `Flux3DistilledModularPipeline`, on its device."""
        self.transformer: Any = pipeline.transformer
        self._text_encoder: Any = pipeline.text_encoder
        self._processor: Any = pipeline.tokenizer
        self._scheduler: Any = pipeline.scheduler
        blocks = pipeline.blocks.sub_blocks
        self._read_references: Any = blocks["vae_encoder"].init_pipeline()
        self._read_references.update_components(vae=pipeline.vae)
        self._encode: Any = Flux3VaeEncoderStep().init_pipeline()
        self._encode.update_components(vae=pipeline.vae)
        self._decode: Any = blocks["decode"].init_pipeline()
        self._decode.update_components(vae=pipeline.vae)
        self._device = placement.device
        self._render_side = placement.render_side
        self._enlarge: Enlarge = placement.enlarge
        self._channels = int(self.transformer.config.in_channels)
        with torch.inference_mode():
            self._preview = LinearPreview.fitted(self._decoded, self._channels, self._device)

    @classmethod
    def load(cls, folder: Path, placement: Placement) -> Self:
        blocks = Flux3DistilledAutoBlocks()
        blocks.sub_blocks.pop("prompt_upsampler")  # prompts are rewritten before they become jobs
        pipeline = blocks.init_pipeline(str(folder))
        pipeline.update_components(**shared_components(folder, placement.dtype))
        pipeline.load_components(dtype=placement.dtype, local_files_only=placement.local_only)
        missing = sorted(name for name, component in pipeline.components.items() if component is None)
        if missing:
            raise CheckpointError(f"{folder}: could not load {', '.join(missing)}; the log says why")
        return cls(pipeline.to(placement.device), placement)

    @torch.inference_mode()
    def encode(self, commissions: Sequence[Commission]) -> list[State | JobError]:
        texts = self._texts([c.job.prompt for c in commissions])
        return [self._state(c, text) for c, text in zip(commissions, texts, strict=True)]

    @torch.inference_mode()
    def velocity(
        self, x: Tensor, t: Tensor, t_next: Tensor, per: dict[str, Tensor], shared: dict[str, Tensor]
    ) -> Tensor:
        dtype = self.transformer.dtype
        moved = self.transformer(
            hidden_states=x.to(dtype),
            encoder_hidden_states=per["text"],
            timestep=t.to(dtype),
            target_timestep=t_next.to(dtype),
            img_ids=shared["picture_ids"],
            txt_ids=shared["text_ids"],
            image_cond_hidden_states=per.get("references"),
            image_cond_ids=shared.get("reference_ids"),
            return_dict=False,
        )
        return moved[0].float()

    @torch.inference_mode()
    def finish(self, state: State) -> Pixels:
        canvas = self._canvas(state.job)
        rows, columns = canvas.crop
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
        return self._decode(latents=latents.to(self.transformer.dtype), output_type="pt", output="images").float()

    def _state(self, commission: Commission, text: Tensor) -> State | JobError:
        job = commission.job
        try:
            references = self._references(commission)
        except JobError as error:
            return error
        canvas = self._canvas(job)
        per, shared = {"text": text}, {"text_ids": _line_ids(text.shape[1])}
        shared["picture_ids"] = _grid_ids(*canvas.grid, place=0)
        if references:
            per["references"] = torch.cat([_packed(r) for r in references], dim=1).to(self.transformer.dtype)
            shared["reference_ids"] = torch.cat(
                [_grid_ids(*r.shape[-2:], place=-1 - k) for k, r in enumerate(references)]
            )
        grids = tuple(tuple(r.shape[-2:]) for r in references)
        t, dt = schedule(self._scheduler, job.steps)
        return State(
            job=job,
            key=(canvas.grid, text.shape[1], grids),
            x=_packed(self._noise(job.seed, canvas.grid)),
            t=t,
            dt=dt,
            per=per,
            shared={name: ids.to(self._device) for name, ids in shared.items()},
            grid=canvas.grid,
            frame=canvas.frame,
        )

    def _noise(self, seed: int, grid: tuple[int, int]) -> Tensor:
        """(1, C, h, w) float32. Drawn on the CPU, so that a seed means the same noise on every device."""
        generator = torch.Generator("cpu").manual_seed(seed)
        return torch.randn((1, self._channels, *grid), generator=generator, dtype=torch.float32).to(self._device)

    def _references(self, commission: Commission) -> list[Tensor]:
        """Latents of the references, (1, C, h, w) each: one keeps its size, several are cut to a megapixel each.

        Where the side to render at is given, each gets a canvas by the rule for what is painted.
        """
        if not commission.references:
            return []
        count = len(commission.references)
        if count > MAX_REFERENCES:
            raise JobError(f"at most {MAX_REFERENCES} input pictures are possible")
        pictures = [open_picture(data) for data in commission.references]
        if self._render_side is None:
            return self._read_references(image=pictures, output="image_cond_latents")
        sizes = [canvas_for(*picture.size, TOKEN, self._render_side).size for picture in pictures]
        # The stock block would pad a single reference to 64 pixels per side; "crop" cuts nothing off whole tokens.
        processor = self._read_references.image_processor
        ready = [
            processor.preprocess(stretch(picture, size), resize_mode="crop")[0]
            for picture, size in zip(pictures, sizes, strict=True)
        ]
        return self._encode(condition_images=ready, output="image_cond_latents")

    def _texts(self, prompts: Sequence[str]) -> list[Tensor]:
        """Text tokens per prompt, (1, L, 8 x width). Prompts of equal padded length go through the encoder together."""
        words = getattr(self._processor, "tokenizer", self._processor)
        chats = [
            self._processor.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
            for prompt in prompts
        ]
        groups: dict[int, list[int]] = defaultdict(list)
        for index, chat in enumerate(chats):
            length = len(words(chat, truncation=True, max_length=MAX_TEXT)["input_ids"])
            groups[min(math.ceil(length / TEXT_MULTIPLE) * TEXT_MULTIPLE, MAX_TEXT)].append(index)
        texts: dict[int, Tensor] = {}
        for length, members in groups.items():
            inputs = words(
                [chats[index] for index in members],
                return_tensors="pt",
                padding="max_length",
                padding_side="right",
                truncation=True,
                max_length=length,
            ).to(self._device)
            texts.update(zip(members, self._encoded(inputs["input_ids"], inputs["attention_mask"]), strict=True))
        return [texts[index] for index in range(len(prompts))]

    def _encoded(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Token ids and mask (B, L) to B stacks of hidden states (1, L, 8 x width), in the transformer's precision."""
        # The models were trained with padding at position 1; newer text encoders would put it at 0.
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens).masked_fill(mask == 0, 1)
        states = self._text_encoder(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            output_hidden_states=True,
            use_cache=False,
            logits_to_keep=1,
        ).hidden_states
        return torch.cat([states[k] for k in TEXT_STATES], dim=-1).to(self.transformer.dtype).split(1)


def _packed(latents: Tensor) -> Tensor:
    """(1, C, h, w) to tokens (1, h x w, C)."""
    return latents.flatten(2).transpose(1, 2)


def _unpacked(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens (1, h x w, C) to (1, C, h, w)."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)


def _grid_ids(rows: int, columns: int, place: int) -> Tensor:
    """Position ids (t, h, w, l) of a picture's tokens, (rows x columns, 4) float32, row by row."""
    ids = torch.cartesian_prod(
        torch.arange(1), torch.arange(rows), torch.arange(columns), torch.tensor([place])
    ).float()
    ids[:, 1:3] *= POSITION_SCALE
    return ids


def _line_ids(length: int) -> Tensor:
    """Position ids of text tokens, (length, 4) float32."""
    ids = torch.zeros(length, 4)
    ids[:, 3] = torch.arange(length)
    return ids
