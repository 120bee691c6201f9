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
    Encoded,
    PreparedRequest,
    PromptEncoder,
    References,
    SharedEncoder,
    from_bytes,
)
from deployments.families.packed.batch import Attention, StepInputs
from deployments.families.packed.transformers import PackedForward
from deployments.families.pipeline import LoadOptions
from deployments.families.state import State, size_of
from deployments.families.step import guided
from deployments.families.vae import LinearPreview, finite
from deployments.images import Pixels, fitted
from deployments.lru_cache import MB, ByteCache, CacheFigures

TOKEN: Final = 16
"""Pixels per side of a token: the autoencoder takes 8, and its latents are packed 2 x 2."""


class Flux(ABC, Generic[Encoded]):
    """Base of the families Flux1, Flux2 and Flux3. Implements, with `velocity` and `load`, family.Family.

    `Encoded` is a prompt as a family's text encoders read it. One that was first read beside others may differ in its
    last bits from what it would be alone, and stays so as long as it is kept.
    """

    text_parts: ClassVar[Sequence[str]]
    reads_no_words: ClassVar[bool] = True
    """Whether an empty prompt means something, which CFG goes away from."""

    def __init__(
        self,
        transformer: Any,
        packed: type[PackedForward],
        load_options: LoadOptions,
        *,
        channels: int,
        references: References[Any],
        decode: Callable[[Tensor], Tensor],
        prompts: PromptEncoder[Encoded] | None,
    ) -> None:
        """`packed` is the transformer's forward over a row of pictures. `channels` is C, the numbers of a token of the
        picture. `decode` takes tokens (1, C, rows, columns) to a picture (1, 3, 16 rows, 16 columns) in [0, 1],
        float32. `prompts` may be None where `load_options` names a shared encoder. Raises CheckpointError for guidance
        that needs more than the family reads."""
        if load_options.cfg is not None and not self.reads_no_words:
            raise CheckpointError(f"cfg must be null for {type(self).__name__}, which reads no empty prompt")
        self.transformer: Any = transformer
        self._encoder = prompts
        self._shared: SharedEncoder | None = load_options.shared_encoder
        self._packed = packed(transformer)
        self._device = load_options.device
        self._render_side = load_options.render_side
        self._read_prompt = load_options.read_prompt
        self._enlarge: Enlarge = load_options.enlarge
        self._channels = channels
        self._decode = decode
        self._prompts: ByteCache[str, Encoded] = ByteCache(load_options.caches.prompts_mb * MB, size_of)
        self._references = references
        self._cfg = load_options.cfg
        self._no_words: Encoded | None = None
        with torch.inference_mode():
            self._preview = LinearPreview.fitted(decode, channels, load_options.device)

    @property
    def caches(self) -> Mapping[str, CacheFigures]:
        return {"prompts": self._prompts.figures, "references": self._references.figures}

    def forget(self) -> None:
        self._prompts.clear()
        self._references.clear()

    def fetch(self, request: PreparedRequest) -> PreparedRequest:
        shared = self._shared
        if shared is None:
            return request
        if self._cfg is not None and self._no_words is None:
            self._no_words = self._received(shared(""))
        read = self._read(request)
        return replace(request, prompt=self._prompts.made(read, lambda: self._received(shared(read))))

    @torch.inference_mode()
    def encode(self, requests: Sequence[PreparedRequest]) -> list[State | JobError]:
        prompts = iter(self._encoded_prompts([self._read(request) for request in requests if request.prompt is None]))
        return [
            self._state_or_error(request, next(prompts) if request.prompt is None else request.prompt)
            for request in requests
        ]

    @torch.inference_mode()
    def packed(self, x: Tensor, states: Sequence[State], moment: StepInputs) -> Tensor:
        return self._packed(x, states, moment)

    def use_packed_attention(self, attention: Attention) -> None:
        self._packed.attention = attention

    @torch.inference_mode()
    def finish(self, state: State) -> Pixels:
        rows, columns = self._canvas(state.job).crop
        decoded = finite(self._decode(to_grid(state.x, state.grid))[..., rows, columns])
        pixels = (decoded[0] * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
        return np.ascontiguousarray(fitted(pixels, state.job.width, state.job.height, self._enlarge))

    @torch.inference_mode()
    def preview(self, state: State) -> Pixels | None:
        if state.v is None:
            return None
        # Along a straight path the velocity points from the noise to the picture, so this is where it would arrive.
        denoised = state.x - state.t[state.i] * state.v
        return self._preview.picture(to_grid(denoised, state.grid), state.job.width, state.job.height)

    @classmethod
    @abstractmethod
    def prompt_encoder(cls, folder: Path, load_options: LoadOptions) -> PromptEncoder[Encoded]:
        """Of the checkpoint in `folder`, with nothing else of it. Raises CheckpointError."""

    @classmethod
    @abstractmethod
    def _encoded(cls, tensors: Sequence[Tensor]) -> Encoded:
        """A prompt from its tensors, in their order."""

    @abstractmethod
    def _state(self, request: PreparedRequest, prompt: Encoded) -> State:
        """The picture before its first step. Raises JobError."""

    @abstractmethod
    def _worded(self, prompt: Encoded) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a state holds of a prompt alone: its part of `per`, and of `ids`."""

    def _received(self, data: bytes) -> Encoded:
        return self._encoded(from_bytes(data, self._device, self.transformer.dtype))

    def _encoded_prompts(self, prompts: Sequence[str]) -> list[Encoded]:
        """One per prompt; equal ones, and those that are kept, are not encoded again."""
        known = {prompt: self._prompts.get(prompt) for prompt in prompts}
        missing = [prompt for prompt, kept in known.items() if kept is None]
        if missing:
            if self._encoder is None:
                raise ValueError("a shared encoder reads the prompts: requests have to be fetched first")
            for prompt, encoded in zip(missing, self._encoder.encode(missing), strict=True):
                known[prompt] = self._prompts.put(prompt, encoded)
        return [kept for prompt in prompts if (kept := known[prompt]) is not None]

    def _read(self, request: PreparedRequest) -> str:
        """The prompt as the checkpoint gets it."""
        job, pictures = request.job, len(request.references)
        if self._read_prompt is None:
            return job.prompt
        placed = any(given is not None for given in (request.mask, request.control, request.image_prompt))
        return self._read_prompt(job.prompt, pictures, placed=placed, tuned=job.adapter is not None)

    def _state_or_error(self, request: PreparedRequest, prompt: Any) -> State | JobError:
        try:
            state = self._state(request, prompt)
        except JobError as error:
            return error
        if self._cfg is None:
            return state
        return guided(state, self._cfg, *self._worded(self._empty()))

    def _empty(self) -> Encoded:
        """A prompt of no words."""
        if self._no_words is None:
            [self._no_words] = self._encoded_prompts([""])
        return self._no_words

    def _canvas(self, job: GenerationJob) -> Canvas:
        return canvas_for(job.width, job.height, TOKEN, self._render_side)


def to_grid(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens (1, rows x columns, C) to (1, C, rows, columns)."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)
