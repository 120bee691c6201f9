"""The course of a training: two kinds of optimizers, rates that rise and fall, and a state to go on from.

Matrices inside blocks and filters of decoders learn with Muon, everything else with AdamW: half the iterations of AdamW
alone. Those that modulate a block by time are among everything else: a step of Muon moves all they say, and each of
them all tokens. The rate is constant and falls to nothing over the second half, which is worth some ten points of
accuracy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from training.trainer.muon import Muon
from training.trainer.processes import ALONE, Processes

_SMOOTHING: Final = 0.98
"""Of the loss that is shown."""
_SAVE_EVERY_S: Final = 60.0

Batch = TypeVar("Batch")
Learnt = TypeVar("Learnt", contravariant=True)
Practice: TypeAlias = Callable[[Random, float], Batch]
"""A data set: makes a batch for a course of which that part, in [0, 1), is done."""


class Learner(Protocol[Learnt]):
    def networks(self) -> Mapping[str, nn.Module]:
        """What is trained, by names of its parts."""
        ...

    def loss(self, batch: Learnt) -> Tensor:
        """A number to make smaller."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    steps: int
    batches: int = 8
    """Per step, which is their mean; divided among the processes."""
    seed: int = 0
    rate: float = 1.0
    """Times the usual rates."""
    warmup: int = 100
    """Steps in which the rates rise."""
    decay: float = 0.5
    """The part of all steps over which the rates fall."""
    floor: float = 0.02
    """The share of them that is left at the end."""
    adamw_rate: float = 2e-3
    muon_rate: float = 0.02
    weight_decay: float = 0.01

    def factor(self, step: int) -> float:
        """Of the rates."""
        left = (self.steps - step) / (self.decay * self.steps)
        return self.rate * min(1.0, (step + 1) / self.warmup, self.floor + (1 - self.floor) * left)


class Course(Generic[Batch]):
    """A learner, its optimizers and its randomness: all that a state of the training must hold."""

    def __init__(
        self, learner: Learner[Batch], practice: Practice[Batch], plan: Plan, processes: Processes = ALONE
    ) -> None:
        """Seeds torch's randomness, too."""
        if plan.batches % processes.count:
            raise ValueError(f"{plan.batches} batches a step can't be divided among {processes.count} processes")
        self._learner, self._practice, self._plan, self._processes = learner, practice, plan, processes
        self._networks = learner.networks()
        processes.agree(list(self._networks.values()))
        self._random = Random(processes.seed(plan.seed))
        torch.manual_seed(processes.seed(plan.seed))
        self.step = 0
        named = {
            f"{part}.{name}": parameter
            for part, network in self._networks.items()
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        }
        self._parameters = list(named.values())
        self._optimizers = _optimizers(named, plan)
        self._rates = [LambdaLR(optimizer, plan.factor) for optimizer in self._optimizers]

    def run(self, state: Path | None = None) -> Iterator[float]:
        """Yields the loss of every step; writes its state every minute, and at the end."""
        saved = time.monotonic()
        keeps = state if self._processes.rank == 0 else None
        while self.step < self._plan.steps:
            loss = self._take_step()
            self.step += 1
            if keeps is not None and (self.step == self._plan.steps or time.monotonic() - saved > _SAVE_EVERY_S):
                write_state(self.state(), keeps)
                saved = time.monotonic()
            yield loss

    def follow(self, state: Path | None = None) -> None:
        """Runs to its end, from `state` on if it is there, under a bar with the loss, smoothed."""
        if state is not None and state.exists():
            self.resume(torch.load(state, weights_only=False))
        smooth = None
        silent = self._processes.rank > 0
        with tqdm(total=self._plan.steps, initial=self.step, unit="step", mininterval=10, disable=silent) as bar:
            for loss in self.run(state):
                smooth = loss if smooth is None else _SMOOTHING * smooth + (1 - _SMOOTHING) * loss
                bar.set_postfix_str(f"loss {smooth:.4f}", refresh=False)
                bar.update()

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "networks": {name: network.state_dict() for name, network in self._networks.items()},
            "optimizers": [kept.state_dict() for kept in (*self._optimizers, *self._rates)],
            "random": self._random.getstate(),
            "torch": torch.get_rng_state(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        for name, network in self._networks.items():
            network.load_state_dict(state["networks"][name])
        for kept, stored in zip((*self._optimizers, *self._rates), state["optimizers"], strict=True):
            kept.load_state_dict(stored)
        if self._processes.rank == 0:
            self._random.setstate(state["random"])
            torch.set_rng_state(state["torch"])
        else:
            self._random = Random(self._processes.seed(self._plan.seed, self.step))
            torch.manual_seed(self._processes.seed(self._plan.seed, self.step))

    def _take_step(self) -> float:
        total, batches = 0.0, self._plan.batches // self._processes.count
        for _ in range(batches):
            loss = self._learner.loss(self._practice(self._random, self.step / self._plan.steps)) / batches
            loss.backward()
            total += loss.item()
        self._processes.mean(self._parameters)
        clip_grad_norm_(self._parameters, 1.0)
        for optimizer, rate in zip(self._optimizers, self._rates, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            rate.step()
        return self._processes.mean_of(total)


def write_state(state: dict[str, Any], file: Path) -> None:
    """All or nothing: a run that is killed while saving goes on from the state before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    torch.save(state, draft)
    os.replace(draft, file)


def _optimizers(named: Mapping[str, nn.Parameter], plan: Plan) -> list[torch.optim.Optimizer]:
    mixing = [parameter for name, parameter in named.items() if _mixes(name, parameter)]
    others = [parameter for name, parameter in named.items() if not _mixes(name, parameter)]
    adamw = torch.optim.AdamW(others, plan.adamw_rate, betas=(0.9, 0.98), weight_decay=plan.weight_decay, fused=True)
    return [adamw, Muon(mixing, plan.muon_rate)] if mixing else [adamw]


def _mixes(name: str, parameter: nn.Parameter) -> bool:
    """Whether it is a filter of a decoder, or a matrix inside a transformer's block that is no modulation or LoRA."""
    if name.startswith("decoder."):
        return parameter.ndim == 4 and parameter.shape[2] == 3 and parameter.shape[0] >= 8
    inside = name.startswith("transformer.") and "blocks." in name and name.endswith(".weight")
    return inside and parameter.ndim == 2 and "norm" not in name and ".lora_" not in name
