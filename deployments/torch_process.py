"""What torch takes of the machine in this process: threads, and a share of a GPU's memory.

A worker without a CPU share, which is how replicas are started, gets one thread from Ray; a model wants the machine.
"""

from __future__ import annotations

import os
import sys

import torch


def set_up_torch(threads: int | None) -> None:
    """Takes so many threads, or one a core, and the share of a GPU that Ray gave to this process. Comes before CUDA."""
    torch.set_num_threads(threads or os.cpu_count() or 1)
    # Blocks that grow: images of many sizes leave no gaps between them.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and torch.cuda.is_available():
        share = ray.get_runtime_context().get_assigned_resources().get("GPU", 0)
        if 0 < share < 1:
            torch.cuda.set_per_process_memory_fraction(share)
