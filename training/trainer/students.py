"""The models that can be trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

import torch

from training.build import build_flux1
from training.trainer.flow import Student
from training.trainer.flux1 import Flux1Student
from training.trainer.flux2 import Flux2Student
from training.trainer.flux3 import Flux3Student
from training.trainer.weights import Published

STATES: Final = Path(".training")
"""Where training goes on from."""


class WholeModel(Student, Protocol):
    """A student that learns all of its checkpoints."""

    def adopt(self, published: Published) -> None:
        """Takes the weights that are in its checkpoints."""
        ...


STUDENTS: Final[Mapping[str, Callable[[], WholeModel]]] = MappingProxyType(
    {
        "flux1": Flux1Student,
        **{name: partial(Flux1Student, name) for name in build_flux1.KINDS},
        "flux2": Flux2Student,
        "flux3": Flux3Student,
    }
)
"""`flux1` is `flux`, `kontext`, `fill` and `canny` in one."""


def stored(model: str, states: Path = STATES) -> tuple[WholeModel, int]:
    """The student in its latest state, and how many steps that took."""
    student = STUDENTS[model]()
    state = torch.load(states / f"{model}.pt", weights_only=False)
    for name, network in student.networks().items():
        network.load_state_dict(state["networks"][name])
    return student, state["step"]
