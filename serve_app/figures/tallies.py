"""What processes counted in memory, and added to the task store: requests, refusals, judging."""

from __future__ import annotations

from collections.abc import Mapping

from redis.asyncio import Redis

from serve_app.figures import declared
from serve_app.figures.scrape import Scrape
from serve_app.redis_store.tally import TIMES, Tallied, tallied


async def tell_of_tallies(redis: Redis, prefix: str, scrape: Scrape) -> None:
    requests = await tallied(redis, prefix, Tallied.REQUESTS)
    for name in _histograms(requests):
        method, status, route = name.split(" ", 2)
        found = TIMES.read(name, requests)
        scrape.add_histogram(declared.HTTP, found, method=method, status=status, route=route)
    judging = await tallied(redis, prefix, Tallied.JUDGING)
    for what in _histograms(judging):
        scrape.add_histogram(declared.JUDGING, TIMES.read(what, judging), what=what)
    for name, count in sorted((await tallied(redis, prefix, Tallied.REFUSALS)).items()):
        reason, endpoint = name.split(" ", 1)
        scrape.add(declared.REFUSED, float(count), endpoint=endpoint, reason=reason)


def _histograms(raw: Mapping[str, str]) -> list[str]:
    return sorted({field.rpartition(":")[0] for field in raw})
