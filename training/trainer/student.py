"""What all models that learn have in common: networks, checkpoints that these are published in, and texts."""

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
    def networks(self) -> dict[str, nn.Module]: ...

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        """(B, N, 48) at times `t` (B,), heading for `t_next` (B,), to its velocity."""
        ...


def tokenized(tokenizer: Any, prompts: Sequence[str], learning: bool, multiple: int | None = None) -> Any:
    """`input_ids` and `attention_mask`, (B, L) each.

    Generating pads to the tokenizer's length, or to a multiple of so many tokens, and padding is attended.
    """
    told = list(prompts)
    longest = max(len(ids) for ids in tokenizer(told)["input_ids"])
    most = tokenizer.model_max_length if multiple is None else math.ceil(longest / multiple) * multiple
    length = padded(longest, most, learning)
    return tokenizer(told, padding="max_length", truncation=True, max_length=length, return_tensors="pt")


def padded(longest: int, most: int, learning: bool) -> int:
    """How many tokens a batch of texts gets: in short ones the same is learnt in far less time, so few have `most`."""
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
