"""What cuts the subject out of a picture, for jobs that want its background gone.

Each way is a class in a file of its own, made from a spec, and a line in `contract.model.BACKGROUND_REMOVERS`.
"""

from __future__ import annotations

import pkgutil
from typing import Protocol

from deployments.contract.model import BACKGROUND_REMOVERS, MattingSpec
from deployments.pictures.pixels import Pixels


class BackgroundRemover(Protocol):
    def alpha(self, picture: Pixels) -> Pixels:
        """(H, W, 3) RGB to (H, W): 255 on the subject, 0 on the background, soft in between.

        Where no subject stands out, everything is subject.
        """
        ...


def load_background_remover(spec: MattingSpec) -> BackgroundRemover:
    """The one that `spec.backend` names. May take long to load. Raises CheckpointError."""
    remover: BackgroundRemover = pkgutil.resolve_name(BACKGROUND_REMOVERS[spec.backend])(spec)
    return remover
