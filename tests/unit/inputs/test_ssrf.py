from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from ipaddress import ip_address

import pytest
from support.website import Website, serving

from serve_app.inputs.bounded_response import ResponseRejected
from serve_app.inputs.fetch import FetchLimiter, UrlFetcher
from serve_app.inputs.resolver import PER_DOMAIN, PER_TENANT, THREADS, FairResolver, Resolver, dns_tenant
from serve_app.inputs.settings import IMAGES, BadImage
from serve_app.inputs.ssrf import UrlGuard, UrlRefused, is_public, parse_url

LOOPBACK = "127.0.0.0/8"


def _resolver(*answers: Sequence[str]) -> Resolver:
    """Gives one answer per call, the last one for ever."""
    remaining = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return resolve


INSIDE = (
    "127.0.0.1 localhost 0x7f000001 2130706433 0.0.0.0 10.0.0.1 169.254.169.254 100.64.0.1 224.0.0.1 [::1] "
    "[::ffff:127.0.0.1] [::ffff:a9fe:a9fe] [::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::1] [2002:7f00:1::] "
    "[2001::1] [fe80::1] [fec0::1] [ff02::1] 192.0.0.192 192.0.0.8 [::ffff:192.0.0.192] [2002:c000:c0::] "
    "192.88.99.1 [3fff::1]"
)


@pytest.mark.parametrize("host", INSIDE.split())
async def test_inside_addresses_are_refused_in_every_notation(host: str, web: Website) -> None:
    guard = UrlGuard()
    with pytest.raises(UrlRefused) as refused:
        await guard.check(web.url(host=host))
    assert "127" not in str(refused.value)
    async with guard.client(timeout=60) as client:
        with pytest.raises(UrlRefused):
            await client.get(web.url(host=host))
    assert not web.paths


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::"])
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))


async def test_one_inside_address_among_public_ones_is_enough() -> None:
    with pytest.raises(UrlRefused, match="public internet"):
        await UrlGuard(resolve=_resolver(["8.8.8.8", "10.0.0.1"])).check("http://mixed.test/")


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
    ],
)
async def test_bad_urls(url: str, reason: str) -> None:
    with pytest.raises(UrlRefused, match=reason):
        parse_url(url)
    with pytest.raises(UrlRefused, match=reason):
        await UrlGuard().check(url)


@pytest.mark.parametrize("url", ["ftp://example.test/", "http://user:word@127.0.0.1/"])
async def test_the_client_refuses_bad_urls_too(url: str) -> None:
    async with UrlGuard([LOOPBACK]).client() as client:
        with pytest.raises(UrlRefused):
            await client.get(url)


@pytest.mark.parametrize("host", ["my_files.xn--p1ai", "r3---sn-xn--x.example"])
async def test_names_that_are_written_like_others_than_ascii_and_are_none(host: str) -> None:
    url = f"http://{host}/a.png"
    with pytest.raises(UrlRefused, match="not a valid URL"):
        await UrlGuard(resolve=_resolver([])).check(url)
    with pytest.raises(BadImage, match="not a valid URL"):
        await UrlFetcher(UrlGuard(resolve=_resolver([])), FetchLimiter()).fetch(url, "us", IMAGES)


async def test_unknown_hosts() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("no such host")

    for guard in (UrlGuard(resolve=unknown), UrlGuard(resolve=_resolver([]))):
        with pytest.raises(UrlRefused, match="resolved"):
            await guard.check("http://nowhere.test/")
    with pytest.raises(UrlRefused):
        await UrlGuard().check(f"http://{'a' * 64}.test/")


async def test_a_resolver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    monkeypatch.setattr("serve_app.inputs.ssrf._RESOLVE_TIMEOUT_S", 0.05)
    guard = UrlGuard(resolve=hang)
    with pytest.raises(UrlRefused, match="in time"):
        await guard.check("http://slow.test/")
    async with guard.client(timeout=60) as client:
        with pytest.raises(UrlRefused, match="in time"):
            await client.get("http://slow.test/")


async def test_rebinding_between_check_and_connection_gains_nothing(web: Website) -> None:
    guard = UrlGuard(resolve=_resolver(["8.8.8.8"], ["127.0.0.1"]))
    await guard.check(web.url(host="rebind.test"))
    async with guard.client(timeout=60) as client:
        with pytest.raises(UrlRefused, match="public internet"):
            await client.get(web.url(host="rebind.test"))
    assert not web.paths


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        (LOOPBACK, "localhost"),
        (LOOPBACK, "[::ffff:127.0.0.1]"),
        ("127.0.0.1", "127.0.0.1"),
        ("LocalHost", "localhost."),
    ],
)
async def test_the_allow_list_opens_hosts_and_networks(allow: str, host: str, web: Website) -> None:
    web.set_page("/ok", b"ok")
    guard = UrlGuard([allow, "::1/128"], resolve=_resolver(["127.0.0.1"]))
    await guard.check(web.url(host=host))
    async with guard.client(timeout=60) as client:
        assert (await client.get(web.url("/ok", host))).text == "ok"


async def test_the_allow_list_opens_nothing_else() -> None:
    guard = UrlGuard(["127.0.0.2", "inside.test"], resolve=_resolver(["127.0.0.1"]))
    await guard.check("http://inside.test/")
    for url in ("http://127.0.0.1/", "http://sub.inside.test/", "http://inside.test.example/"):
        with pytest.raises(UrlRefused):
            await guard.check(url)


async def test_the_client_follows_no_redirect_and_reads_no_proxy(web: Website, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    web.set_page("/", status=302, location=web.url("/next"))
    async with UrlGuard([LOOPBACK]).client(timeout=60, headers={"user-agent": "test"}) as client:
        assert (await client.get(web.url())).status_code == 302
    assert web.paths == ["/"]


async def test_the_next_address_is_tried_when_one_does_not_answer(web: Website) -> None:
    web.set_page("/ok", b"ok")
    async with UrlGuard([LOOPBACK], resolve=_resolver(["127.0.0.2", "127.0.0.1"])).client(timeout=60) as client:
        assert (await client.get(web.url("/ok", "two.test"))).text == "ok"


PATIENCE_S = 60


class DeadNameServer:
    """Never answers for names with `dead` before a dot while it is asked to hang; knows all others."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.most_at_a_time = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def look_up(self, host: str, port: int) -> Sequence[str]:
        if "dead." in host:
            with self._lock:
                self.threads.add(threading.get_ident())
                self._in_flight += 1
                self.most_at_a_time = max(self.most_at_a_time, self._in_flight)
            self._over.wait()
            with self._lock:
                self._in_flight -= 1
        return ["8.8.8.8"]

    def end(self) -> None:
        self._over.set()

    async def hanging(self, lookups: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self._in_flight < lookups:
                await asyncio.sleep(0.001)


@pytest.fixture
async def server() -> AsyncIterator[DeadNameServer]:
    server = DeadNameServer()
    yield server
    server.end()


async def test_other_names_are_resolved_while_one_domain_hangs_in_few_threads(server: DeadNameServer) -> None:
    guard = UrlGuard(resolve=FairResolver(server.look_up))
    asking = [asyncio.create_task(guard.addresses(f"{n}.dead.test", 80)) for n in range(2 * THREADS)]
    await server.hanging(PER_DOMAIN)
    async with asyncio.timeout(PATIENCE_S):
        for n in range(2 * THREADS):
            assert await guard.addresses(f"alive{n}.test", 443) == ["8.8.8.8"]
    assert server.most_at_a_time == PER_DOMAIN
    server.end()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_who_no_longer_waits_gives_no_thread_free(
    server: DeadNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.inputs.ssrf._RESOLVE_TIMEOUT_S", 0.01)
    guard = UrlGuard(resolve=FairResolver(server.look_up))
    for _ in range(3):
        names = [guard.check(f"http://{n}.dead.test/") for n in range(PER_DOMAIN)]
        refusals = await asyncio.gather(*names, return_exceptions=True)
        assert {str(each) for each in refusals} == {"the host name of the URL could not be resolved in time"}
    assert 0 < len(server.threads) <= PER_DOMAIN


async def test_the_dead_names_of_one_organization_hold_up_no_others(server: DeadNameServer) -> None:
    guard = UrlGuard(resolve=FairResolver(server.look_up))

    async def ask(organization: str, host: str) -> Sequence[str]:
        dns_tenant.set(organization)
        return await guard.addresses(host, 80)

    domains = THREADS // PER_DOMAIN
    asking = [
        asyncio.create_task(ask("theirs", f"{n}.{domain}dead.test"))
        for domain in range(domains)
        for n in range(PER_DOMAIN)
    ]
    # Below a suffix that is sold to anyone, as `co.uk` is.
    asking += [asyncio.create_task(ask("others", f"www.shop{n}-dead.co.test")) for n in range(PER_DOMAIN)]
    await server.hanging(PER_TENANT + PER_DOMAIN)
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.create_task(ask("ours", "alive.test")) == ["8.8.8.8"]
        assert await asyncio.create_task(ask("ours", "www.alive.co.test")) == ["8.8.8.8"]
    assert server.most_at_a_time == PER_TENANT + PER_DOMAIN
    server.end()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_a_domain_that_recovers_is_resolved_again(
    server: DeadNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    """The only way out; it alone knows names."""
    with serving() as site:
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", site.url(host="127.0.0.1"))
        yield site


async def _unknown(host: str, port: int) -> Sequence[str]:
    raise OSError("no such host")


async def test_a_name_that_only_the_proxy_knows(proxy: Website) -> None:
    url = "http://hooks.example.com/called"
    proxy.set_page(url, b"by proxy")
    guard = UrlGuard(resolve=_unknown)
    await guard.check(url)
    async with guard.client(timeout=60) as client:
        assert (await client.get(url)).content == b"by proxy"
    assert proxy.paths == [url]


@pytest.mark.parametrize("host", [*INSIDE.split(), "metadata.google.internal", "intranet", "printer.local"])
async def test_inside_hosts_do_not_get_to_the_proxy(proxy: Website, host: str) -> None:
    async with UrlGuard(resolve=FairResolver()).client(timeout=60) as client:
        with pytest.raises(UrlRefused):
            await client.get(f"http://{host}/")
    assert not proxy.paths


async def test_a_public_name_with_an_inside_address_does_not_either(proxy: Website) -> None:
    with pytest.raises(UrlRefused, match="public internet"):
        await UrlGuard(resolve=_resolver(["8.8.8.8", "10.0.0.1"])).check("http://mixed.example.com/")


async def test_what_is_allowed_is_called_directly(proxy: Website, web: Website) -> None:
    web.set_page("/called", b"directly")
    guard = UrlGuard([LOOPBACK], resolve=_resolver(["127.0.0.1"]))
    async with guard.client(timeout=60) as client:
        assert (await client.get(web.url("/called", host="own.example.com"))).content == b"directly"
    assert not proxy.paths


async def test_answers_through_the_proxy_are_bounded_as_well(proxy: Website) -> None:
    url = "http://hooks.example.com/"
    proxy.set_page(url, b"x", 200, 0.0, None, **{f"x_{number}": "y" * 1000 for number in range(40)})
    async with UrlGuard(resolve=_unknown).client(timeout=60) as client:
        with pytest.raises(ResponseRejected, match="headers"):
            await client.get(url)
