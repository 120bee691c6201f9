"""What clients send in place of a file, what hosts of pictures answer, and what they are told."""

from __future__ import annotations

import gzip
import socket
import zlib
from collections.abc import Callable, Iterator

import brotli
import pytest
from PIL import Image
from support.fetching import fetcher
from support.pictures import encoded, file_of, picture
from support.website import Website

from serve_app.inputs.fetch import Fetcher, FetchTurns
from serve_app.inputs.images import read_image
from serve_app.inputs.inputs import Inputs
from serve_app.inputs.settings import BadPicture, PictureLimits
from serve_app.inputs.url_guard import UrlGuard

PICTURE = Image.effect_noise((60, 40), 80)


@pytest.fixture
def gate() -> Iterator[Callable[[UrlGuard], Inputs]]:
    made: list[Inputs] = []

    def make(guard: UrlGuard) -> Inputs:
        made.append(Inputs(guard, decoders=1))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def inputs(gate: Callable[[UrlGuard], Inputs]) -> Inputs:
    return gate(UrlGuard(["127.0.0.0/8"]))


async def test_what_would_be_accepted_is_told(inputs: Inputs) -> None:
    for value in ("***", "caf\u00e9", "aGVsbG8=", encoded(picture(64, 48))[:50]):
        with pytest.raises(BadPicture) as refused:
            await inputs.picture(value, "us")
        assert "expected a JPEG, PNG or WebP picture as base64, a data: URI or an http(s) URL" in str(refused.value)
        assert "at most 20 MB and 20 megapixels" in str(refused.value)


async def test_url_and_base64_load_alike(inputs: Inputs, web: Website) -> None:
    data = file_of(PICTURE, "JPEG")
    web.put("/cat", data)
    fetched = await inputs.picture(f" {web.url('/cat')} ", "us")
    assert fetched == read_image(data)
    assert await inputs.picture(encoded(data), "us") == fetched


async def test_redirects_are_followed_up_to_the_limit(inputs: Inputs, web: Website) -> None:
    for n, status in ((4, 301), (3, 302), (2, 307), (1, 308)):
        web.put(f"/{n}", status=status, location=f"/{n - 1}")
    web.put("/0", file_of(PICTURE, "PNG"))
    assert (await inputs.picture(web.url("/3"), "us")).width == 60
    with pytest.raises(BadPicture, match="redirects more than 3 times"):
        await inputs.picture(web.url("/4"), "us")


async def test_a_redirect_to_what_is_no_url_is_refused(inputs: Inputs, web: Website) -> None:
    web.put("/lost", status=302, location="http:////x]y")
    with pytest.raises(BadPicture, match="redirects to what is no URL"):
        await inputs.picture(web.url("/lost"), "us")


async def test_a_redirect_to_an_inside_address_is_refused(gate: Callable[[UrlGuard], Inputs], web: Website) -> None:
    inputs = gate(UrlGuard(["public.test"], resolve=_one_name_public))
    web.put("/", status=302, location=web.url("/secret"))
    with pytest.raises(BadPicture, match=r"refused.*public internet"):
        await inputs.picture(web.url(host="public.test"), "us")
    web.put("/", status=302, location="file:///etc/passwd")
    with pytest.raises(BadPicture, match=r"refused.*http://"):
        await inputs.picture(web.url(host="public.test"), "us")
    assert web.asked == ["/", "/"]


async def _one_name_public(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize("status", [204, 404])
async def test_other_statuses(inputs: Inputs, status: int, web: Website) -> None:
    web.put("/", b"", status=status)
    with pytest.raises(BadPicture, match=f"HTTP status {status}"):
        await inputs.picture(web.url(), "us")


async def test_a_body_over_the_limit_is_cut_off(inputs: Inputs, web: Website) -> None:
    web.put("/", b"x" * 3_000_000)
    with pytest.raises(BadPicture, match="file is too large"):
        await inputs.picture(web.url(), "us", PictureLimits(max_bytes=1_000_000))


async def test_a_body_that_never_comes(inputs: Inputs, web: Website) -> None:
    web.put("/", b"x", delay_s=1.0)
    with pytest.raises(BadPicture, match=r"within 0\.2 s"):
        await inputs.picture(web.url(), "us", PictureLimits(timeout_s=0.2))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://127.0.0.1:bad/", "HTTPS://127.0.0.1:1/"])
async def test_urls_that_cannot_be_fetched(inputs: Inputs, url: str) -> None:
    with pytest.raises(BadPicture, match="could not be fetched"):
        await inputs.picture(url, "us")


async def test_a_broken_answer(inputs: Inputs, web: Website) -> None:
    web.put("/", b"short", content_length="500")
    with pytest.raises(BadPicture, match="could not be fetched"):
        await inputs.picture(web.url(), "us")


BODY = bytes(range(256)) * 100
FETCHER = fetcher("127.0.0.0/8")


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("br", brotli.compress),
    ],
    ids=["gzip", "upper case", "deflate", "deflate without header", "br"],
)
async def test_compression_that_nobody_asked_for_is_undone(
    web: Website, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    url = web.put("/a.png", compress(BODY), content_encoding=encoding)
    assert await FETCHER.fetch(url, "us", PictureLimits()) == BODY
    assert await FETCHER.fetch(url, "us", PictureLimits(max_bytes=len(BODY))) == BODY


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        ("gzip", gzip.compress(bytes(50 * 2**20)), "too large"),
        ("gzip", b"no gzip at all", "not compressed as it says"),
        ("br", brotli.compress(bytes(50 * 2**20)), "too large"),
        ("br", b"no brotli at all", "not compressed as it says"),
        ("zstd", b"x", "the encoding 'zstd'; expected none, gzip, deflate or br"),
    ],
    ids=["a bomb", "no gzip", "a bomb of br", "no br", "zstd"],
)
async def test_what_unfolds_too_far_or_not_at_all_is_refused(
    web: Website, encoding: str, body: bytes, reason: str
) -> None:
    url = web.put("/a.png", body, content_encoding=encoding)
    with pytest.raises(BadPicture, match=reason):
        await FETCHER.fetch(url, "us", PictureLimits(max_bytes=2**20))


async def test_hosts_are_told_who_asks(web: Website) -> None:
    telling = Fetcher(UrlGuard(["127.0.0.0/8"]), FetchTurns(), "https://media.example.com")
    await telling.fetch(web.put("/a.png", b"x"), "us", PictureLimits())
    [agent] = web.agents
    assert agent is not None
    assert agent.startswith("gen-serve/")
    assert agent.endswith(" (+https://media.example.com)")


async def test_why_there_is_no_connection_is_said(web: Website) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(BadPicture, match="the connection was refused"):
            await FETCHER.fetch(f"http://127.0.0.1:{bound.getsockname()[1]}/", "us", PictureLimits())
    with pytest.raises(BadPicture, match="does not speak TLS there"):
        await FETCHER.fetch(web.url().replace("http:", "https:"), "us", PictureLimits())
