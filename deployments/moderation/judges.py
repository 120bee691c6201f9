"""What a judge does, and how one is found by its name.

Judges are made once, in the thread that will use them, and may take long to load. They raise CheckpointError when they
can't be made. Whatever they raise while judging means that nothing was judged.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from deployments.contract.moderation import JudgeSpec, Scores
from deployments.pictures.pixels import Pixels


class TextJudge(Protocol):
    def judge(self, texts: Sequence[str]) -> list[Scores]:
        """One for each, in order."""
        ...


class PictureJudge(Protocol):
    def judge(self, pictures: Sequence[Pixels]) -> list[Scores]:
        """One for each, in order; pictures are (H, W, 3) RGB and differ in size."""
        ...


def load_judge(spec: JudgeSpec, judges: Mapping[str, str]) -> Any:
    """The judge that `spec` names among `judges`, each of which is called with its spec alone."""
    return pkgutil.resolve_name(judges[spec.backend])(spec)
