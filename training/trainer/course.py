"""What every course of training has: two kinds of optimizers, a rate that rises and falls, and a state to go on from.

Matrices inside the blocks learn with Muon, everything else with AdamW: half the iterations of AdamW alone. Those that
modulate a block by time are among everything else: a step of Muon moves all they say, and each of them all tokens. The
rate is
constant and falls to nothing over the second half, which is worth some ten points of accuracy.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, Self

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from training.trainer.muon import Muon

WARMUP = 100
DECAY = 0.5
"""The part of all steps over which the rate falls."""
FLOOR = 0.02
ADAMW_RATE, MUON_RATE = 2e-3, 0.02


class Course(ABC):
    """Networks, their optimizers and their randomness: all that a checkpoint of the training must hold."""

    def __init__(self, networks: Mapping[str, nn.Module], *, steps: int, seed: int, rate: float) -> None:
        """`rate` is times the usual rates. Seeds torch's randomness, too."""
        self._networks = networks
        self._steps = steps
        self._rate = rate
        self._random = Random(seed)
        torch.manual_seed(seed)
        self.step = 0
        named = {
            f"{part}.{name}": parameter
            for part, network in networks.items()
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        }
        self._parameters = list(named.values())
        self._optimizers = _optimizers(named)
        self._rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self._optimizers]

    @abstractmethod
    def _learn(self) -> float:
        """Adds the gradients of one step, and tells its loss."""

    def _surroundings(self) -> AbstractContextManager[None]:
        """What all steps are taken in."""
        return nullcontext()

    def run(self, save: Callable[[Self], None], save_every_s: float = 60.0) -> Generator[float]:
        """Yields the loss of every step; calls `save` now and then, and at the end."""
        saved = time.monotonic()
        with self._surroundings():
            while self.step < self._steps:
                loss = self._take_step()
                self.step += 1
                if time.monotonic() - saved > save_every_s:
                    save(self)
                    saved = time.monotonic()
                yield loss
        save(self)

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "networks": {name: network.state_dict() for name, network in self._networks.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "random": self._random.getstate(),
            "torch": torch.get_rng_state(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        for name, network in self._networks.items():
            network.load_state_dict(state["networks"][name])
        for optimizer, stored in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        self._random.setstate(state["random"])
        torch.set_rng_state(state["torch"])

    def _take_step(self) -> float:
        self._set_rates()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        loss = self._learn()
        clip_grad_norm_(self._parameters, 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        return loss

    def _set_rates(self) -> None:
        left = (self._steps - self.step) / (DECAY * self._steps)
        factor = self._rate * min(1.0, (self.step + 1) / WARMUP, FLOOR + (1 - FLOOR) * left)
        for optimizer, rates in zip(self._optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor


def write_state(state: dict[str, Any], file: Path) -> None:
    """All or nothing: a run that is killed while saving goes on from the state before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    torch.save(state, draft)
    os.replace(draft, file)


def _optimizers(named: Mapping[str, nn.Parameter]) -> list[torch.optim.Optimizer]:
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in named.items():
        (matrices if _mixes(name) and parameter.ndim == 2 else others).append(parameter)
    adamw = torch.optim.AdamW(others, lr=ADAMW_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    if not matrices:
        return [adamw]
    return [adamw, Muon(matrices, MUON_RATE)]


def _mixes(name: str) -> bool:
    """Whether a parameter is a weight inside a block, and no modulation."""
    return name.startswith("transformer.") and "blocks." in name and name.endswith(".weight") and "norm" not in name
