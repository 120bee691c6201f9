"""The models that can be trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from deployments.bundled.training.flow import Student
from deployments.bundled.training.flux1 import Flux1Student
from deployments.bundled.training.flux2 import Flux2Student
from deployments.bundled.training.flux3 import Flux3Student

STATES: Final = Path(".training")
"""Where training goes on from."""

STUDENTS: Final[Mapping[str, Callable[[], Student]]] = MappingProxyType(
    {"flux1": Flux1Student, "flux2": Flux2Student, "flux3": Flux3Student}
)
