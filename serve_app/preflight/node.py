"""What one machine says of itself: runs there, as a task of Ray's or in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from serve_app.config import fingerprint
from serve_app.config.bound import BoundSettings, MissingSecret
from serve_app.preflight import objects, store, switches, weights
from serve_app.preflight.finding import Finding, fine, refused, unusual
from serve_app.weights.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Questions:
    bound: BoundSettings
    switches: Mapping[str, str] | None
    """None: this process serves nothing, so it need not have them."""
    wanted: tuple[Wanted, ...]
    release: str
    seen_before: str | None


def answer(questions: Questions, where: str) -> list[Finding]:
    return [*_itself(questions, where), *asyncio.run(_reached(questions, where))]


def _itself(questions: Questions, where: str) -> Iterator[Finding]:
    if questions.switches is not None:
        yield from switches.findings(where, switches.read(tuple(questions.switches)), questions.switches)
        yield _token(where)
    if (release := fingerprint.release()) != questions.release:
        yield refused("release", where, f"{release}, not {questions.release}", "install the same one on every node")
    else:
        yield fine("release", where, release)
    yield from weights.look(questions.wanted, where)


async def _reached(questions: Questions, where: str) -> list[Finding]:
    try:
        settings = questions.bound.settings()
    except MissingSecret as problem:
        return [refused("secrets", where, str(problem), "docs/settings.md says where secrets are looked for")]
    found = await asyncio.gather(store.look(settings, where), objects.look(settings, where, questions.seen_before))
    return [fine("secrets", where, "all found"), *(finding for findings in found for finding in findings)]


def _token(where: str) -> Finding:
    from serve_app import ray_internals

    if ray_internals.is_token_asked_for():
        return fine("Ray's token", where, "asked for")
    told = "not asked for: whoever reaches a port of Ray's can run code here"
    return unusual("Ray's token", where, told, "start Ray on every node with RAY_AUTH_MODE=token")
