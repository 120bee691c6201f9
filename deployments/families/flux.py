"""Base of the Flux families: sizes, decoding, previews, CFG, and failures of single jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic

import numpy as np
import torch
from torch import Tensor

from deployments.backend import JobError
from deployments.checkpoint_files import CheckpointError
from deployments.contract.job import GenerationJob
from deployments.contract.model import Enlarge
from deployments.families.canvas import Canvas, canvas_for
from deployments.families.conditioning import (
    Embeds,
    PreparedRequest,
    PromptEncoder,
    ReferenceCache,
    SharedEncoder,
    from_bytes,
)
from deployments.families.packed.batch import Attention, StepInputs
from deployments.families.packed.transformers import PackedForward
from deployments.families.pipeline import LoadOptions, load_pipeline
from deployments.families.previews import LinearPreview
from deployments.families.state import State, tensor_bytes
from deployments.families.step import with_cfg
from deployments.families.vae import finite, place_vae
from deployments.images import Pixels, fit
from deployments.lru_cache import MB, ByteCache, CacheStats

TOKEN: Final = 16
"""Pixels per side of a token: 8 per latent, and latents are packed 2 x 2."""


class Flux(ABC, Generic[Embeds]):
    """Base of the families Flux1, Flux2 and Flux3. Implements Family, except `velocity` and `load`.

    `Embeds` is an encoded prompt. One that was encoded in a batch may differ in its last bits from one encoded alone,
    and stays so while it is cached.
    """

    text_parts: ClassVar[Sequence[str]]
    prompt_type: ClassVar[Any]
    """Named tuple of an encoded prompt, `Embeds`."""
    encoder_type: ClassVar[Any]
    """PromptEncoder, made from a pipeline and its LoadOptions."""
    packed_type: ClassVar[type[PackedForward]]
    max_references: ClassVar[int]
    reads_empty_prompts: ClassVar[bool] = True
    """True when the text encoder reads an empty prompt, which CFG needs."""

    def __init__(
        self,
        pipeline: Any,
        load_options: LoadOptions,
        *,
        channels: int,
        decode: Callable[[Tensor], Tensor],
        solo_differs: bool = False,
    ) -> None:
        """`pipeline` is loaded, on its device. `channels` is C, the channels of an image token. `decode` takes tokens
        (1, C, rows, columns) to an image (1, 3, 16 rows, 16 columns) in [0, 1], float32. `solo_differs` is that of the
        ReferenceCache. Raises CheckpointError for CFG without empty prompts."""
        config = load_options.config
        if config.cfg is not None and not self.reads_empty_prompts:
            raise CheckpointError(f"cfg must be null for {type(self).__name__}, which reads no empty prompt")
        place_vae(pipeline.vae, load_options)
        self.transformer: Any = pipeline.transformer
        self._shared_encoder: SharedEncoder | None = load_options.shared_encoder
        self._encoder: PromptEncoder[Embeds] | None = None
        if load_options.shared_encoder is None:
            self._encoder = self.encoder_type(pipeline, load_options)
        self._packed_forward = self.packed_type(pipeline.transformer)
        self._device = load_options.device
        self._render_side = config.render_side
        self._read_prompt = load_options.read_prompt
        self._enlarge: Enlarge = config.enlarge
        self._channels = channels
        self._decode = decode
        self._prompts: ByteCache[str, Embeds] = ByteCache(config.caches.prompts_mb * MB, tensor_bytes)
        self._references: ReferenceCache[Any] = ReferenceCache(
            self.max_references, config.caches, solo_differs=solo_differs
        )
        self._cfg = config.cfg
        self._empty_prompt: Embeds | None = None
        with torch.inference_mode():
            self._preview = LinearPreview.fit(decode, channels, load_options.device)

    @property
    def caches(self) -> Mapping[str, CacheStats]:
        return {"prompts": self._prompts.stats, "references": self._references.stats}

    def forget(self) -> None:
        self._prompts.clear()
        self._references.clear()

    def fetch(self, request: PreparedRequest) -> PreparedRequest:
        encode = self._shared_encoder
        if encode is None:
            return request
        if self._cfg is not None and self._empty_prompt is None:
            self._empty_prompt = self._prompt_from_bytes(encode(""))
        prompt = self._read(request)
        return replace(
            request, prompt=self._prompts.get_or_create(prompt, lambda: self._prompt_from_bytes(encode(prompt)))
        )

    @torch.inference_mode()
    def encode(self, requests: Sequence[PreparedRequest]) -> list[State | JobError]:
        prompts = iter(self._encode_prompts([self._read(request) for request in requests if request.prompt is None]))
        return [
            self._state_or_error(request, next(prompts) if request.prompt is None else request.prompt)
            for request in requests
        ]

    @torch.inference_mode()
    def packed_velocity(self, x: Tensor, states: Sequence[State], inputs: StepInputs) -> Tensor:
        return self._packed_forward(x, states, inputs)

    def use_packed_attention(self, attention: Attention) -> None:
        self._packed_forward.attention = attention

    @torch.inference_mode()
    def finish(self, state: State) -> Pixels:
        rows, columns = self._canvas(state.job).crop
        image = finite(self._decode(to_grid(state.x, state.grid))[..., rows, columns])
        pixels = (image[0] * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
        return np.ascontiguousarray(fit(pixels, state.job.request.width, state.job.request.height, self._enlarge))

    @torch.inference_mode()
    def preview(self, state: State) -> Pixels | None:
        if state.v is None:
            return None
        # Along a straight path the velocity points from the noise to the image, so the rest of the path ends there.
        denoised = state.x - state.t[state.i] * state.v
        return self._preview.image(to_grid(denoised, state.grid), state.job.request.width, state.job.request.height)

    @classmethod
    def prompt_encoder(cls, folder: Path, load_options: LoadOptions) -> PromptEncoder[Embeds]:
        """Loads only the prompt encoder of the checkpoint in `folder`. Raises CheckpointError."""
        return cls.encoder_type(load_pipeline(folder, load_options, without=("transformer", "vae")), load_options)

    @abstractmethod
    def _state(self, request: PreparedRequest, prompt: Embeds) -> State:
        """Returns the state before the first step. Raises JobError."""

    @abstractmethod
    def _text_conditioning(self, prompt: Embeds) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Returns the parts of `State.per` and `State.ids` that depend on the prompt alone."""

    def _prompt_from_bytes(self, data: bytes) -> Embeds:
        return self.prompt_type(*from_bytes(data, self._device, self.transformer.dtype))

    def _encode_prompts(self, prompts: Sequence[str]) -> list[Embeds]:
        """Returns one result per prompt. Encodes equal prompts once, and cached ones not at all."""
        embeds = {prompt: self._prompts.get(prompt) for prompt in prompts}
        missing = [prompt for prompt, entry in embeds.items() if entry is None]
        if missing:
            if self._encoder is None:
                raise ValueError("a shared encoder reads the prompts: requests have to be fetched first")
            for prompt, result in zip(missing, self._encoder.encode(missing), strict=True):
                embeds[prompt] = self._prompts.put(prompt, result)
        return [entry for prompt in prompts if (entry := embeds[prompt]) is not None]

    def _read(self, request: PreparedRequest) -> str:
        job, images = request.job, len(request.references)
        if self._read_prompt is None:
            return job.request.prompt
        placed = any(value is not None for value in (request.mask, request.control, request.image_prompt))
        return self._read_prompt(job.request.prompt, images, placed=placed, tuned=job.adapter is not None)

    def _state_or_error(self, request: PreparedRequest, prompt: Any) -> State | JobError:
        try:
            state = self._state(request, prompt)
        except JobError as error:
            return error
        if self._cfg is None:
            return state
        return with_cfg(state, self._cfg, *self._text_conditioning(self._encode_empty_prompt()))

    def _encode_empty_prompt(self) -> Embeds:
        if self._empty_prompt is None:
            [self._empty_prompt] = self._encode_prompts([""])
        return self._empty_prompt

    def _canvas(self, job: GenerationJob) -> Canvas:
        return canvas_for(job.request.width, job.request.height, TOKEN, self._render_side)


def to_grid(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """Converts tokens (1, rows x columns, C) to (1, C, rows, columns)."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)
