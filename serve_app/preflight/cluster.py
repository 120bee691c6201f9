"""Asks every node of a cluster, and the processes of Serve that run there, each from inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from serve_app import ray_internals
from serve_app.preflight import node, switches
from serve_app.preflight.finding import Finding, refused, unusual
from serve_app.preflight.node import Questions

_WITHIN_S: Final = 8.0
"""For all of them together: the rest of ten seconds is for what is asked here."""


def ask(questions: Questions, wanted: Mapping[str, str]) -> list[Finding]:
    """Within some eight seconds; who has not answered by then is said to."""
    processes = _processes(tuple(wanted))
    nodes = _nodes(questions)
    waiting: dict[Any, str] = {**processes, **nodes}
    done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=_WITHIN_S)
    answered = set(done)
    found: list[Finding] = []
    # That a busy node is slow says nothing against it; that nobody at all was looked at leaves everything open.
    late = unusual if answered & set(nodes) else refused
    for answer, where in waiting.items():
        if answer not in answered:
            mend = "is it busy, or full? gen-serve check looks again, deploy --unchecked does not look"
            found.append(late("answer", where, f"none within {_WITHIN_S:g} s", mend))
            continue
        try:
            told: Any = ray.get(answer)
        except RayError as problem:
            mend = "install the same release of the service on every node"
            found.append(refused("answer", where, str(problem).strip().splitlines()[-1], mend))
            continue
        found += switches.findings(where, told, wanted) if answer in processes else told
    return found


def _nodes(questions: Questions) -> dict[Any, str]:
    task: Any = ray.remote(num_cpus=0, max_retries=0)(node.answer)
    asked = {}
    for each in ray.nodes():
        if each["Alive"]:
            there = NodeAffinitySchedulingStrategy(each["NodeID"], soft=False)
            where = f"node {each['NodeManagerAddress']}"
            here = tuple(one for one in questions.wanted if one.fits(each["Resources"]))
            asked[task.options(scheduling_strategy=there).remote(replace(questions, wanted=here), where)] = where
    return asked


def _processes(names: tuple[str, ...]) -> dict[Any, str]:
    """The controller and the proxies, where Serve runs; replicas have the environment of their nodes."""
    return {actor.__ray_call__.remote(_read, names): where for where, actor in ray_internals.actors_of_serve(_WITHIN_S)}


def _read(_: object, names: tuple[str, ...]) -> dict[str, str | None]:
    return switches.read(names)
