"""The nodes of a cluster that this process has joined, as machines that fetch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from serve_app.weights.fetching import Fetcher, Kept, Told
from serve_app.weights.machines import Lost, Machine
from serve_app.weights.wanted import Wanted

_ANSWERS_WITHIN_S: Final = 60.0
"""The first time, a process of Ray's has to start."""
_OFFLINE: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Nodes have these so that replicas don't ask the hub. Whoever fetches wants to: this command's environment counts."""


def nodes(wanted: Sequence[Wanted]) -> list[Machine]:
    """Those that replicas may run on which load any of it."""
    found = []
    for each in ray.nodes():
        here = tuple(one for one in wanted if one.fits(each["Resources"]))
        if each["Alive"] and here:
            found.append(Machine(f"node {each['NodeManagerAddress']}", OnNode(each["NodeID"]), here))
    return found


class OnNode:
    """A Fetcher in a process on that node, with the node's own HF_HOME and token. It ends with this process."""

    def __init__(self, node_id: str) -> None:
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        environment = {"env_vars": {name: os.environ.get(name, "0") for name in _OFFLINE}}
        actor: Any = ray.remote(num_cpus=0)(Fetcher)
        self._actor = actor.options(scheduling_strategy=there, runtime_env=environment).remote()

    def mark(self) -> str:
        return _answer(self._actor.mark.remote())

    def sees(self, names: Sequence[str]) -> frozenset[str]:
        return _answer(self._actor.sees.remote(names))

    def unmark(self, name: str) -> None:
        _answer(self._actor.unmark.remote(name))

    def look(self, wanted: Sequence[Wanted]) -> list[Kept]:
        return _answer(self._actor.look.remote(wanted))

    def begin(self, wanted: Sequence[Wanted]) -> None:
        _answer(self._actor.begin.remote(wanted))

    def told(self) -> Told:
        return _answer(self._actor.told.remote())


def _answer(asked: Any) -> Any:
    try:
        return ray.get(asked, timeout=_ANSWERS_WITHIN_S)
    except RayError as problem:
        raise Lost(f"it does not answer: {str(problem).strip().splitlines()[-1]}") from None
