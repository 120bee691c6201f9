"""Runs checks at a server, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx2

from serve_app.conformance.budget import Budget
from serve_app.conformance.check import Check, Outcome, Verdict
from serve_app.conformance.receiver import Receiver
from serve_app.conformance.session import Session, Target
from serve_app.conformance.topics import TOPICS
from serve_app.conformance.verdicts import Broken, Skipped

_TIMEOUT_S: Final = 90.0
"""Of one request; polls wait for up to a minute."""
_MISSING: Final = {
    "finetune": "needs a tuned model: --finetune ENDPOINT=ID",
    "receiver": "needs a receiver that the server reaches: --receiver-host",
    "video": "videos are dear: --video",
}
_MALFORMED: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError)
"""What reading an answer raises that has not the form it should have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    base_url: str
    key: str = field(repr=False)
    budget: float
    """Credits that the run may cost."""
    receiver_host: str | None = None
    """How the server reaches this machine; None: it can't."""
    finetunes: Mapping[str, str] = field(default_factory=dict)
    video: bool = False
    task_s: float = 300.0
    """How long a task may take."""


def chosen(only: Collection[str] = (), *, interface_only: bool = False) -> list[Check]:
    """The checks of these topics, else of all. Raises ValueError for a topic that there is not."""
    names = [topic.name for topic in TOPICS]
    if unknown := set(only) - set(names):
        raise ValueError(f"no section {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    checks = [check for topic in TOPICS if not only or topic.name in only for check in topic.checks]
    return [check for check in checks if not (interface_only and check.decided)]


async def run(checks: Sequence[Check], options: Options) -> AsyncIterator[Outcome]:
    """Their outcomes, as they come. Raises httpx2.HTTPError when nobody answers at the address."""
    async with contextlib.AsyncExitStack() as stack:
        receiver = stack.enter_context(Receiver(options.receiver_host)) if options.receiver_host else None
        http = await stack.enter_async_context(
            httpx2.AsyncClient(
                base_url=options.base_url.rstrip("/"),
                timeout=_TIMEOUT_S,
                trust_env=False,
                headers={"User-Agent": "gen-conformance"},
            )
        )
        await http.get("/v1/get_result")
        budget = Budget(options.budget)
        target = Target(http, options.key, budget, receiver, options.finetunes, options.video, options.task_s)
        for check in checks:
            yield await outcome(check, target)


async def outcome(check: Check, target: Target) -> Outcome:
    there = {"finetune": target.finetunes, "receiver": target.receiver, "video": target.video}
    if check.needs and not there[check.needs]:
        return Outcome(check, Verdict.SKIPPED, _MISSING[check.needs])
    session = Session(target)
    verdict, reason = Verdict.HOLDS, ""
    try:
        await check.run(session)
    except Skipped as skipped:
        verdict, reason = Verdict.SKIPPED, str(skipped)
    except Broken as broken:
        verdict, reason = Verdict.FAILS, str(broken)
    except httpx2.HTTPError as problem:
        verdict, reason = Verdict.FAILS, f"an answer; there was {type(problem).__name__}"
    except _MALFORMED as problem:
        verdict, reason = Verdict.FAILS, f"an answer of the form described; reading it: {problem!r}"
    last = session.last
    with contextlib.suppress(httpx2.HTTPError):
        await session.close()
    if verdict is not Verdict.FAILS or last is None:
        return Outcome(check, verdict, reason)
    return Outcome(check, verdict, reason, last.sent, last.received)
