"""Bundled checkpoints in a folder of the test's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from deployments.checkpoint_files import BUNDLED


def copied(checkpoint: str, bundle: Path) -> Path:
    """The folder of a copy below `bundle`, which gets the autoencoders that checkpoints share, too."""
    shutil.copytree(BUNDLED.parent / "autoencoders", bundle / "autoencoders", dirs_exist_ok=True)
    return Path(shutil.copytree(BUNDLED / checkpoint, bundle / "checkpoints" / checkpoint))
