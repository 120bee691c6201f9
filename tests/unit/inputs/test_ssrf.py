from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from ipaddress import ip_address

import httpx2
import pytest
from support.fetchers import fetcher
from support.website import Website, serving

from serve_app.inputs.bounded_response import ResponseRejected
from serve_app.inputs.httpx_internals import WRITTEN_FOR
from serve_app.inputs.resolver import PER_DOMAIN, PER_TENANT, THREADS, FairResolver, Resolver, dns_tenant
from serve_app.inputs.settings import IMAGES, BadImage
from serve_app.inputs.ssrf import UrlGuard, UrlRefused, is_public

LOOPBACK = "127.0.0.0/8"


def answer(*answers: Sequence[str]) -> Resolver:
    """Returns a resolver that gives one answer per call, and the last one forever."""
    remaining = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return resolve


async def resolve_nothing(host: str, port: int) -> Sequence[str]:
    raise OSError("no such host")


async def get(guard: UrlGuard, url: str) -> httpx2.Response:
    async with guard.client(timeout=60) as client:
        return await client.get(url)


INSIDE = (
    "127.0.0.1 localhost 0x7f000001 2130706433 0.0.0.0 10.0.0.1 169.254.169.254 100.64.0.1 224.0.0.1 [::1] "
    "[::ffff:127.0.0.1] [::ffff:a9fe:a9fe] [::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::1] [2002:7f00:1::] "
    "[2001::1] [fe80::1] [fec0::1] [ff02::1] 192.0.0.192 192.0.0.8 [::ffff:192.0.0.192] [2002:c000:c0::] "
    "192.88.99.1 [3fff::1]"
)


@pytest.mark.parametrize("host", INSIDE.split())
async def test_inside_address_is_refused_in_every_notation(host: str) -> None:
    with pytest.raises(UrlRefused) as refused:
        await UrlGuard().check(f"http://{host}:9/")
    assert "127" not in str(refused.value)
    with pytest.raises(UrlRefused):
        await get(UrlGuard(), f"http://{host}:9/")


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::"])
def test_public_address_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("behind_proxy", [False, True])
async def test_one_inside_address_among_public_ones_is_refused(
    request: pytest.FixtureRequest, behind_proxy: bool
) -> None:
    if behind_proxy:
        request.getfixturevalue("proxy")
    with pytest.raises(UrlRefused, match="public internet"):
        await UrlGuard(resolve=answer(["8.8.8.8", "10.0.0.1"])).check("http://mixed.example.com/")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.test/", "http://"),
        ("example.test", "http://"),
        ("http://", "host"),
        ("http://user:word@example.test/", "credentials"),
        ("http://example.test:65536/", "valid URL"),
        ("http://example.test:0/", "valid URL"),
        ("http://0177.0.0.1/", "valid URL"),
        ("http://exa\x00mple.test/", "valid URL"),
        ("http://my_files.xn--p1ai/", "valid URL"),
        ("http://r3---sn-xn--x.example/", "valid URL"),
    ],
)
async def test_invalid_url_is_refused(url: str, reason: str) -> None:
    with pytest.raises(UrlRefused, match=reason):
        await UrlGuard(resolve=answer([])).check(url)


@pytest.mark.parametrize("url", ["ftp://example.test/", "http://user:word@127.0.0.1/"])
async def test_client_refuses_invalid_url(url: str) -> None:
    with pytest.raises(UrlRefused):
        await get(UrlGuard([LOOPBACK]), url)


async def test_fetcher_refuses_invalid_punycode() -> None:
    with pytest.raises(BadImage, match="not a valid URL"):
        await fetcher(resolve=answer([])).fetch("http://my_files.xn--p1ai/", "us", IMAGES)


async def test_unknown_host_is_refused() -> None:
    for guard in (UrlGuard(resolve=resolve_nothing), UrlGuard(resolve=answer([]))):
        with pytest.raises(UrlRefused, match="resolved"):
            await guard.check("http://nowhere.test/")
    with pytest.raises(UrlRefused):
        await UrlGuard().check(f"http://{'a' * 64}.test/")


async def test_slow_resolver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(host: str, port: int) -> Sequence[str]:
        return await asyncio.Future()

    monkeypatch.setattr("serve_app.inputs.ssrf._RESOLVE_TIMEOUT_S", 0.05)
    guard = UrlGuard(resolve=hang)
    for call in (guard.check("http://slow.test/"), get(guard, "http://slow.test/")):
        with pytest.raises(UrlRefused, match="in time"):
            await call


async def test_address_is_checked_again_as_the_client_connects(web: Website) -> None:
    guard = UrlGuard(resolve=answer(["8.8.8.8"], ["127.0.0.1"]))
    await guard.check(web.url(host="rebind.test"))
    with pytest.raises(UrlRefused, match="public internet"):
        await get(guard, web.url(host="rebind.test"))
    assert not web.paths


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        *((LOOPBACK, "localhost"), (LOOPBACK, "[::ffff:127.0.0.1]")),
        *(("127.0.0.1", "127.0.0.1"), ("LocalHost", "localhost.")),
    ],
)
async def test_allow_list_opens_hosts_and_networks(allow: str, host: str, web: Website) -> None:
    web.set_page("/ok", b"ok")
    guard = UrlGuard([allow, "::1/128"], resolve=answer(["127.0.0.1"]))
    await guard.check(web.url(host=host))
    assert (await get(guard, web.url("/ok", host))).text == "ok"


async def test_allow_list_opens_nothing_else() -> None:
    guard = UrlGuard(["127.0.0.2", "inside.test"], resolve=answer(["127.0.0.1"]))
    await guard.check("http://inside.test/")
    for url in ("http://127.0.0.1/", "http://sub.inside.test/", "http://inside.test.example/"):
        with pytest.raises(UrlRefused):
            await guard.check(url)


async def test_client_follows_no_redirect_and_reads_no_proxy(web: Website, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    web.set_page("/", status=302, location=web.url("/next"))
    assert (await get(UrlGuard([LOOPBACK]), web.url())).status_code == 302
    assert web.paths == ["/"]


async def test_next_address_is_tried_when_one_does_not_answer(web: Website) -> None:
    web.set_page("/ok", b"ok")
    guard = UrlGuard([LOOPBACK], resolve=answer(["127.0.0.2", "127.0.0.1"]))
    assert (await get(guard, web.url("/ok", "two.test"))).text == "ok"


PATIENCE_S = 60


class DeadNameServer:
    """Resolves names with `dead.` only after `end`, and all others at once."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.max_concurrent = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def look_up(self, host: str, port: int) -> Sequence[str]:
        if "dead." in host:
            with self._lock:
                self.threads.add(threading.get_ident())
                self._in_flight += 1
                self.max_concurrent = max(self.max_concurrent, self._in_flight)
            self._over.wait()
            with self._lock:
                self._in_flight -= 1
        return ["8.8.8.8"]

    def end(self) -> None:
        self._over.set()

    async def wait_for_lookups(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self._in_flight < count:
                await asyncio.sleep(0.001)


@pytest.fixture
async def server() -> AsyncIterator[DeadNameServer]:
    server = DeadNameServer()
    yield server
    server.end()


async def test_hanging_domain_delays_no_other_names(server: DeadNameServer) -> None:
    guard = UrlGuard(resolve=FairResolver(server.look_up))
    lookups = [asyncio.create_task(guard.addresses(f"{n}.dead.test", 80)) for n in range(2 * THREADS)]
    await server.wait_for_lookups(PER_DOMAIN)
    async with asyncio.timeout(PATIENCE_S):
        for n in range(2 * THREADS):
            assert await guard.addresses(f"alive{n}.test", 443) == ["8.8.8.8"]
    assert server.max_concurrent == PER_DOMAIN
    server.end()
    await asyncio.gather(*lookups, return_exceptions=True)


async def test_cancelled_lookup_keeps_its_thread(server: DeadNameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.inputs.ssrf._RESOLVE_TIMEOUT_S", 0.01)
    guard = UrlGuard(resolve=FairResolver(server.look_up))
    for _ in range(3):
        names = [guard.check(f"http://{n}.dead.test/") for n in range(PER_DOMAIN)]
        refusals = await asyncio.gather(*names, return_exceptions=True)
        assert {str(each) for each in refusals} == {"the host name of the URL could not be resolved in time"}
    assert 0 < len(server.threads) <= PER_DOMAIN


async def test_dead_names_of_one_organization_delay_no_others(server: DeadNameServer) -> None:
    guard = UrlGuard(resolve=FairResolver(server.look_up))

    async def resolve(organization: str, host: str) -> Sequence[str]:
        dns_tenant.set(organization)
        return await guard.addresses(host, 80)

    names = [("theirs", f"{n}.{domain}dead.test") for domain in range(THREADS // PER_DOMAIN) for n in range(PER_DOMAIN)]
    # Below a suffix that is sold to anyone, as `co.uk` is.
    names += [("others", f"www.shop{n}-dead.co.test") for n in range(PER_DOMAIN)]
    lookups = [asyncio.create_task(resolve(*each)) for each in names]
    await server.wait_for_lookups(PER_TENANT + PER_DOMAIN)
    async with asyncio.timeout(PATIENCE_S):
        for host in ("alive.test", "www.alive.co.test"):
            assert await asyncio.create_task(resolve("ours", host)) == ["8.8.8.8"]
    assert server.max_concurrent == PER_TENANT + PER_DOMAIN
    server.end()
    await asyncio.gather(*lookups, return_exceptions=True)


async def test_recovered_domain_is_resolved_again(server: DeadNameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = FairResolver(server.look_up)
    with monkeypatch.context() as patched:
        patched.setattr("serve_app.inputs.ssrf._RESOLVE_TIMEOUT_S", 0.01)
        guard = UrlGuard(resolve=resolver)
        names = [guard.check(f"http://{n}.dead.test/") for n in range(2 * PER_DOMAIN)]
        assert all(isinstance(each, UrlRefused) for each in await asyncio.gather(*names, return_exceptions=True))
    server.end()
    async with asyncio.timeout(PATIENCE_S):
        assert await guard.addresses("0.dead.test", 80) == ["8.8.8.8"]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Website]:
    with serving() as site:
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", site.url(host="127.0.0.1"))
        yield site


async def test_name_that_only_the_proxy_knows_goes_through_it(proxy: Website) -> None:
    url = "http://hooks.example.com/called"
    proxy.set_page(url, b"by proxy")
    guard = UrlGuard(resolve=resolve_nothing)
    await guard.check(url)
    assert (await get(guard, url)).content == b"by proxy"
    assert proxy.paths == [url]


@pytest.mark.parametrize("host", [*INSIDE.split(), "metadata.google.internal", "intranet", "printer.local"])
async def test_inside_host_is_refused_before_the_proxy(proxy: Website, host: str) -> None:
    with pytest.raises(UrlRefused):
        await get(UrlGuard(), f"http://{host}/")
    assert not proxy.paths


async def test_allowed_host_is_called_without_the_proxy(proxy: Website, web: Website) -> None:
    web.set_page("/called", b"directly")
    guard = UrlGuard([LOOPBACK], resolve=answer(["127.0.0.1"]))
    assert (await get(guard, web.url("/called", host="own.example.com"))).content == b"directly"
    assert not proxy.paths


async def test_response_through_the_proxy_is_bounded(proxy: Website) -> None:
    url = "http://hooks.example.com/"
    proxy.set_page(url, b"x", 200, 0.0, None, **{f"x_{number}": "y" * 1000 for number in range(40)})
    with pytest.raises(ResponseRejected, match="headers"):
        await get(UrlGuard(resolve=resolve_nothing), url)


def test_httpx_internals_are_of_the_installed_release() -> None:
    hint = f"compare httpx_internals.py with httpx2 {httpx2.__version__}, then set WRITTEN_FOR"
    assert httpx2.__version__.rpartition(".")[0] == WRITTEN_FOR, hint
