"""What cuts the subject out of a picture, for jobs that want its background gone.

Each way is a class in a file of its own, made from a spec, and a line in `contract.model.MATTERS`.
"""

from __future__ import annotations

import importlib
from typing import Protocol

from deployments.contract.model import MATTERS, MattingSpec
from deployments.families.pictures import Pixels


class Matter(Protocol):
    def alpha(self, picture: Pixels) -> Pixels:
        """(H, W, 3) RGB to (H, W): 255 on the subject, 0 on the background, soft in between.

        Where no subject stands out, everything is subject.
        """
        ...


def made(spec: MattingSpec) -> Matter:
    """What `spec.backend` names. May take long to load. Raises CheckpointError."""
    module, name = MATTERS[spec.backend].split(":")
    matter: Matter = getattr(importlib.import_module(module), name)(spec)
    return matter
