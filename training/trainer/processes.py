"""One course on several cores: each process makes batches of its own, and all step by the mean of their gradients.

A step of flux3 takes seven tenths of the time with two processes of one thread each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes


@dataclass(frozen=True, slots=True)
class Processes:
    """This one among so many, which have the same course."""

    rank: int = 0
    count: int = 1

    def seed(self, seed: int, step: int = 0) -> int:
        """Of this process' randomness from that step on; the first one's is the course's own."""
        return seed if self.rank == 0 else hash((seed, step, self.rank)) % 2**31

    def agree(self, networks: Sequence[nn.Module]) -> None:
        """All take the weights of the first."""
        if self.count > 1:
            for network in networks:
                for tensor in network.state_dict().values():
                    dist.broadcast(tensor, 0)

    def mean(self, parameters: Sequence[nn.Parameter]) -> None:
        """Of gradients. Those that no process has stay None, as optimizers leave such parameters alone."""
        if self.count == 1:
            return
        known = [parameter.grad for parameter in parameters]
        had = torch.tensor([float(gradient is not None) for gradient in known])
        given = [torch.zeros_like(of) if known is None else known for known, of in zip(known, parameters, strict=True)]
        flat = torch.cat([had, *(gradient.flatten() for gradient in given)]) / self.count
        dist.all_reduce(flat)
        had, *means = flat.split([len(parameters), *(parameter.numel() for parameter in parameters)])
        for parameter, gradient, by in zip(parameters, means, had.tolist(), strict=True):
            parameter.grad = gradient.view_as(parameter) if by else None

    def mean_of(self, loss: float) -> float:
        if self.count == 1:
            return loss
        losses: Tensor = torch.tensor(loss)
        dist.all_reduce(losses)
        return losses.item() / self.count


ALONE: Final = Processes()


def run_processes(count: int, work: Callable[[Processes], None]) -> None:
    """`work` in so many processes, forked before torch has threads of its own; they meet at a file."""
    if count == 1:
        work(ALONE)
        return
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_joined, (count, Path(folder) / "meeting", work), count, start_method="fork")


def _joined(rank: int, count: int, meeting: Path, work: Callable[[Processes], None]) -> None:
    dist.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=count)
    try:
        work(Processes(rank, count))
    finally:
        dist.destroy_process_group()
