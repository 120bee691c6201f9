"""Where a checkpoint lies, by the name that a catalog gives it, as far as that is known without fetching anything."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BUNDLED: Final = Path(__file__).parent.parent / "bundled" / "checkpoints"
SIMULATED: Final = "simulated/"
"""Before the milliseconds that a step takes: no model at all (`backends/simulated.py`)."""
REDUX: Final = "redux"
"""The folder of a Flux1 checkpoint that holds what reads image prompts."""


def place_of(checkpoint: str) -> Path | None:
    """The folder of a checkpoint on this machine, None for one on the model hub.

    `bundled/NAME` has a place whether or not there is such a one.
    """
    if checkpoint.startswith("bundled/"):
        return BUNDLED / checkpoint.removeprefix("bundled/")
    return Path(checkpoint).resolve() if Path(checkpoint).is_dir() else None
