"""Names that never resolve slow down nobody but those who ask for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from serve_app.inputs.url_guard import PER_ASKER, PER_DOMAIN, THREADS, SystemResolver, UrlGuard, UrlRefused, asker

PATIENCE_S = 60


class DeadNameServer:
    """Never answers for names with `dead` before a dot while it is asked to hang; knows all others."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.most_at_a_time = 0
        self._under_way = 0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def look_up(self, host: str, port: int) -> Sequence[str]:
        if "dead." in host:
            with self._lock:
                self.threads.add(threading.get_ident())
                self._under_way += 1
                self.most_at_a_time = max(self.most_at_a_time, self._under_way)
            self._over.wait()
            with self._lock:
                self._under_way -= 1
        return ["8.8.8.8"]

    def end(self) -> None:
        self._over.set()

    async def hanging(self, lookups: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self._under_way < lookups:
                await asyncio.sleep(0.001)


@pytest.fixture
async def server() -> AsyncIterator[DeadNameServer]:
    server = DeadNameServer()
    yield server
    server.end()


@pytest.fixture
async def hanging(server: DeadNameServer) -> AsyncIterator[UrlGuard]:
    """A guard that is asked for many names of a dead domain, all of which hang."""
    guard = UrlGuard(resolve=SystemResolver(server.look_up))
    asking = [asyncio.create_task(guard.addresses(f"{n}.dead.test", 80)) for n in range(2 * THREADS)]
    await server.hanging(PER_DOMAIN)
    yield guard
    server.end()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_other_names_are_resolved_meanwhile(hanging: UrlGuard) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for n in range(2 * THREADS):
            assert await hanging.addresses(f"alive{n}.test", 443) == ["8.8.8.8"]


async def test_the_names_of_one_domain_take_few_threads(hanging: UrlGuard, server: DeadNameServer) -> None:
    await hanging.addresses("alive.test", 443)
    assert server.most_at_a_time == PER_DOMAIN


async def test_who_no_longer_waits_gives_no_thread_free(
    server: DeadNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.inputs.url_guard._RESOLVE_TIMEOUT_S", 0.01)
    guard = UrlGuard(resolve=SystemResolver(server.look_up))
    for _ in range(3):
        names = [guard.check(f"http://{n}.dead.test/") for n in range(PER_DOMAIN)]
        refusals = await asyncio.gather(*names, return_exceptions=True)
        assert {str(each) for each in refusals} == {"the host name of the URL could not be resolved in time"}
    assert 0 < len(server.threads) <= PER_DOMAIN


async def test_the_dead_names_of_one_organization_hold_up_no_others(server: DeadNameServer) -> None:
    guard = UrlGuard(resolve=SystemResolver(server.look_up))

    async def ask(organization: str, host: str) -> Sequence[str]:
        asker.set(organization)
        return await guard.addresses(host, 80)

    domains = THREADS // PER_DOMAIN
    asking = [
        asyncio.create_task(ask("theirs", f"{n}.{domain}dead.test"))
        for domain in range(domains)
        for n in range(PER_DOMAIN)
    ]
    # Below a suffix that is sold to anyone, as `co.uk` is.
    asking += [asyncio.create_task(ask("others", f"www.shop{n}-dead.co.test")) for n in range(PER_DOMAIN)]
    await server.hanging(PER_ASKER + PER_DOMAIN)
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.create_task(ask("ours", "alive.test")) == ["8.8.8.8"]
        assert await asyncio.create_task(ask("ours", "www.alive.co.test")) == ["8.8.8.8"]
    assert server.most_at_a_time == PER_ASKER + PER_DOMAIN
    server.end()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_a_domain_that_recovers_is_resolved_again(
    server: DeadNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = SystemResolver(server.look_up)
    with monkeypatch.context() as patched:
        patched.setattr("serve_app.inputs.url_guard._RESOLVE_TIMEOUT_S", 0.01)
        guard = UrlGuard(resolve=resolver)
        names = [guard.check(f"http://{n}.dead.test/") for n in range(2 * PER_DOMAIN)]
        assert all(isinstance(each, UrlRefused) for each in await asyncio.gather(*names, return_exceptions=True))
    server.end()
    async with asyncio.timeout(PATIENCE_S):
        assert await guard.addresses("0.dead.test", 80) == ["8.8.8.8"]
