"""How many threads torch takes in this process.

A worker without a CPU share, which is how replicas are started, gets one from Ray; a model wants the machine.
"""

from __future__ import annotations

import os

import torch


def take_threads(count: int | None) -> None:
    """So many, or one a core."""
    torch.set_num_threads(count or os.cpu_count() or 1)
