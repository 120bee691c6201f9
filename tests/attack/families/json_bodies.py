"""Bodies of honest requests, mutated: whatever is sent as JSON is answered shortly, and never fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from attack.attacks import Shot
from attack.corpus import Sample, samples
from attack.mutations import HEAVY, LIGHT, Mutated, Mutation
from attack.stage import Stage
from attack.wire import Request

_NO_HTTP: Final = frozenset({"wrong length", "odd header"})
"""Kinds whose requests may be no proper HTTP."""
_HEAVY_EVERY: Final = 60
"""One in so many is of megabytes."""


def attacks(repository: Path, seed: int, count: int) -> Sequence[Shot]:
    """Each kind of mutation in turn, each of a request picked at random."""
    light, heavy = list(LIGHT), list(HEAVY)
    made = []
    for number in range(count):
        turn, rest = divmod(number, _HEAVY_EVERY)
        kind = light[number % len(light)] if rest else heavy[turn % len(heavy)]
        sample = Random(f"{seed} {number}").choice(samples())
        made.append(_shot(f"{sample.name}: {kind} {seed}/{number}", sample, kind, f"{seed}/{number}"))
    return made


def unchanged(sample: Sample) -> Shot:
    """What an honest client sends."""
    return Shot(sample.name, _building(sample, lambda _, body: Mutated(json.dumps(body).encode()), ""), sample.role)


def _shot(name: str, sample: Sample, kind: str, mark: str) -> Shot:
    mutation = LIGHT.get(kind) or HEAVY[kind]
    return Shot(name, _building(sample, mutation, mark), sample.role, broken=kind in _NO_HTTP)


def _building(sample: Sample, mutation: Mutation, mark: str) -> Callable[[Stage], Request]:
    def build(stage: Stage) -> Request:
        made = mutation(Random(mark), sample.body)
        target = sample.path.format(organization=stage.attacker.organization, project=stage.spare)
        body = made.body.replace(b"{project}", stage.spare.encode())
        headers = (*made.headers, *sample.headers.items())
        return Request(sample.method, target, body, headers, made.declared, made.chunks)

    return build
