"""What turns one picture into another in a single pass: no prompt, no steps.

A classic algorithm, a network in ONNX or in torch: each is a class in a file of its own, made from the model's spec,
and a line in `contract.model.RESTORERS`.
"""

from __future__ import annotations

import pkgutil
from typing import Protocol

from deployments.contract.model import RESTORERS, ModelSpec
from deployments.pictures.pixels import Pixels


class Restorer(Protocol):
    def restore(self, picture: Pixels, mask: Pixels | None) -> Pixels:
        """(H, W, 3) RGB, and (H, W) that is 255 where it is to be painted anew and else 0, to (H, W, 3) RGB.

        Restorers that repair a whole picture get no mask. Raises JobError where a job can't be done.
        """
        ...


def load_restorer(spec: ModelSpec) -> Restorer:
    """The restorer that `spec.backend` names. May take long to load. Raises CheckpointError."""
    restorer: Restorer = pkgutil.resolve_name(RESTORERS[spec.backend])(spec)
    return restorer
