"""What all models that learn have in common: networks, checkpoints that these are published in, and texts.

Texts take less time here than in generating: without idle layers, and mostly without padding.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import torch
from diffusers.utils.logging import disable_progress_bar
from torch import Tensor, nn

from training.build.bundle import CHECKPOINTS, replace_weights
from training.build.checkpoints import component
from training.lessons.batches import Batch

FULLY_PADDED: Final = 0.3
"""How many batches of texts are padded as far as in generating."""
_MULTIPLE: Final = 8

Published: TypeAlias = Callable[[str, str, type], dict[str, Tensor]]
"""From a checkpoint's name, the folder of one of its components and the class of that to its weights."""


class Student(ABC):
    name: str
    """Of its checkpoint."""

    @abstractmethod
    def networks(self) -> dict[str, nn.Module]:
        """What is trained, by the names of the checkpoint's components."""

    def checkpoints(self) -> Mapping[str, Mapping[str, nn.Module]]:
        """By the names of checkpoints, the networks to store there by the folders of their components."""
        return {self.name: self.networks()}

    def adopt(self, published: Published) -> None:
        """Takes the weights that are in its checkpoint."""
        for part, network in self.networks().items():
            network.load_state_dict(published(self.name, part, type(network)))


class PictureStudent(Protocol):
    shift: float
    """Of the times drawn; 1 is uniform, more is nearer to the noise."""

    def networks(self) -> dict[str, nn.Module]: ...

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        """(B, N, 48) at times `t` (B,), heading for `t_next` (B,), to its velocity."""
        ...


class QwenStudent(Student):
    """A transformer and a Qwen text encoder of which only the first layer does anything, run as if it had no others.

    Its weights are the whole encoder's own, so what they learn is in all of it.
    """

    shift = 5.0

    def __init__(self) -> None:
        self.transformer = component(self.name, "transformer")
        self.text_encoder = component(self.name, "text_encoder")
        self.tokenizer = component(self.name, "tokenizer")
        self._stream = torch.empty(0)
        self._decoder().layers[0].register_forward_hook(self._keep)

    @abstractmethod
    def _decoder(self) -> Any:
        """The text encoder's stack of layers."""

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer, "text_encoder": self.text_encoder}

    def read(self, prompts: Sequence[str], multiple: int | None = None, padding_position: int | None = None) -> Any:
        """(B, L, width) each: the stream after the first layer, and its normed end.

        Generating pads to the tokenizer's length, or to a multiple of so many tokens.
        """
        longest = max(len(ids) for ids in self.tokenizer(list(prompts))["input_ids"])
        most = self.tokenizer.model_max_length if multiple is None else math.ceil(longest / multiple) * multiple
        length = padded(longest, most, self.transformer.training)
        tokens = self.tokenizer(
            list(prompts), return_tensors="pt", padding="max_length", truncation=True, max_length=length
        )
        mask = tokens["attention_mask"]
        positions = None
        if padding_position is not None:
            positions = torch.arange(length).expand_as(mask).masked_fill(mask == 0, padding_position)
        decoder = self._decoder()
        whole, decoder.layers = decoder.layers, decoder.layers[:1]
        try:
            last = decoder(
                input_ids=tokens["input_ids"], attention_mask=mask, position_ids=positions, use_cache=False
            ).last_hidden_state
        finally:
            decoder.layers = whole
            # Kept, it would be copied with the layer, which tensors with a history can't be.
            stream, self._stream = self._stream, torch.empty(0)
        return stream, last

    def _keep(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        self._stream = output[0] if isinstance(output, tuple) else output


def padded(longest: int, most: int, learning: bool) -> int:
    """How many tokens the texts of a batch get, of which the longest has `longest`.

    Generating pads to `most`, and padding is attended. In short texts the same is learnt in far less time, so only some
    batches are padded so far while learning.
    """
    if not learning or torch.rand(()).item() < FULLY_PADDED:
        return most
    return min(most, math.ceil(longest / _MULTIPLE) * _MULTIPLE)


def published(checkpoint: str, part: str, kind: Any, checkpoints: Path = CHECKPOINTS) -> dict[str, Tensor]:
    """The weights of a component that are in a bundled checkpoint, in single precision."""
    return kind.from_pretrained(checkpoints / checkpoint / part, dtype=torch.float32).state_dict()


def publish(student: Student, checkpoints: Path = CHECKPOINTS) -> None:
    """Writes the student's networks, in half precision, over those of its checkpoints."""
    disable_progress_bar()
    for checkpoint, parts in student.checkpoints().items():
        for part, network in parts.items():
            halved: Any = copy.deepcopy(network).half()
            replace_weights(checkpoints / checkpoint / part, halved.save_pretrained)
