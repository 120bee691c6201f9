"""Sends requests at moments fixed beforehand and follows each task to its end.

An open loop never waits for an answer before it sends the next request, as clients that know nothing of each other
don't. A service that can't keep up therefore shows it, in growing waits, instead of slowing its own load down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from benchmarks.outcomes import TERMINAL, Outcome


@dataclass(frozen=True, slots=True)
class Load:
    """Any service that speaks the dialect. Times in seconds."""

    base_url: str
    key: str
    path: str
    body: Mapping[str, Any]
    limit: float
    """From acceptance; a task that has not ended by then counts as lost."""
    poll_every: float
    wait: float = 0
    """How long a poll may wait at the server. Only this service knows the parameter; 0 leaves it out."""


async def run(load: Load, schedule: Sequence[float], on_end: Callable[[Outcome], None]) -> list[Outcome]:
    """One outcome per arrival, in their order. `on_end` hears of each as it ends."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    client = httpx2.AsyncClient(
        base_url=load.base_url,
        headers={"x-key": load.key},
        timeout=load.wait + 30,
        limits=limits,
        trust_env=False,
    )
    epoch, zero = time.time(), time.monotonic()
    outcomes = [Outcome(scheduled=epoch + moment) for moment in schedule]

    async def arrive(moment: float, outcome: Outcome) -> None:
        await asyncio.sleep(max(0.0, zero + moment - time.monotonic()))
        await _carry(client, load, outcome)
        on_end(outcome)

    async with client:
        await asyncio.gather(*map(arrive, schedule, outcomes))
    return outcomes


async def _carry(client: httpx2.AsyncClient, load: Load, outcome: Outcome) -> None:
    try:
        response = await client.post(f"/v1/{load.path}", json=dict(load.body))
    except httpx2.HTTPError as problem:
        outcome.refusal = type(problem).__name__
        return
    if not response.is_success:
        outcome.refusal = f"HTTP {response.status_code}"
        return
    outcome.acknowledged = time.time()
    outcome.status = "Pending"
    address = response.json()["polling_url"]
    give_up = time.monotonic() + load.limit
    while outcome.final is None and time.monotonic() < give_up:
        if not load.wait:
            await asyncio.sleep(load.poll_every)
        await _poll(client, address, load.wait, outcome)


async def _poll(client: httpx2.AsyncClient, address: str, wait: float, outcome: Outcome) -> None:
    """A poll that fails is counted and repeated: it says nothing about the task."""
    outcome.polls += 1
    url = httpx2.URL(address).copy_merge_params({"wait": wait}) if wait else httpx2.URL(address)
    try:
        response = await client.get(url)
        task = response.json()
        outcome.status = task["status"]
    except (httpx2.HTTPError, ValueError, KeyError):
        outcome.poll_errors += 1
        await asyncio.sleep(0.2)
        return
    if outcome.status in TERMINAL:
        outcome.final = time.time()
        result = task.get("result") or {}
        outcome.started, outcome.ended = result.get("start_time"), result.get("end_time")
    elif response.status_code == 404:
        await asyncio.sleep(0.2)  # it may be there on the next look; if it never is, the task counts as lost
