"""What cuts the subject out of a picture, for jobs that want its background gone.

Each way is a class in a file of its own, made from a spec, and a line in `contract.model.BACKGROUND_REMOVERS`.
"""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from typing import Protocol

from deployments.checkpoint_files import network_file
from deployments.contract.model import BACKGROUND_REMOVERS, NETWORKS, MattingSpec
from deployments.pictures.pixels import Pixels


class BackgroundRemover(Protocol):
    def alpha(self, picture: Pixels) -> Pixels:
        """(H, W, 3) RGB to (H, W): 255 on the subject, 0 on the background, soft in between.

        Where no subject stands out, everything is subject.
        """
        ...


def with_network_here(spec: MattingSpec) -> MattingSpec:
    """The same, with the file of its network on this machine, which is fetched. Raises CheckpointError."""
    if spec.checkpoint is None or spec.backend not in NETWORKS:
        return spec
    return replace(spec, checkpoint=str(network_file(spec.checkpoint, spec.revision)), revision=None)


def load_background_remover(spec: MattingSpec) -> BackgroundRemover:
    """The one that `spec.backend` names. May take long to load. Raises CheckpointError."""
    remover: BackgroundRemover = pkgutil.resolve_name(BACKGROUND_REMOVERS[spec.backend])(spec)
    return remover
