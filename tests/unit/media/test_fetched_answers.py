"""What hosts of pictures answer, and what they are told."""

from __future__ import annotations

import gzip
import socket
import zlib
from collections.abc import Callable, Iterator

import brotli
import pytest
from support.fetching import fetcher
from support.website import Website, serving

from serve_app.media.fetching import Fetcher, FetchTurns
from serve_app.media.limits import BadPicture, PictureLimits
from serve_app.media.url_guard import UrlGuard

BODY = bytes(range(256)) * 100
FETCHER = fetcher("127.0.0.0/8")


@pytest.fixture
def site() -> Iterator[Website]:
    with serving() as site:
        yield site


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
    site: Website, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    url = site.put("/a.png", compress(BODY), content_encoding=encoding)
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
    site: Website, encoding: str, body: bytes, reason: str
) -> None:
    url = site.put("/a.png", body, content_encoding=encoding)
    with pytest.raises(BadPicture, match=reason):
        await FETCHER.fetch(url, "us", PictureLimits(max_bytes=2**20))


async def test_hosts_are_told_who_asks(site: Website) -> None:
    telling = Fetcher(UrlGuard(["127.0.0.0/8"]), FetchTurns(), "https://media.example.com")
    await telling.fetch(site.put("/a.png", b"x"), "us", PictureLimits())
    [agent] = site.agents
    assert agent is not None
    assert agent.startswith("gen-serve/")
    assert agent.endswith(" (+https://media.example.com)")


async def test_why_there_is_no_connection_is_said(site: Website) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(BadPicture, match="the connection was refused"):
            await FETCHER.fetch(f"http://127.0.0.1:{bound.getsockname()[1]}/", "us", PictureLimits())
    with pytest.raises(BadPicture, match="does not speak TLS there"):
        await FETCHER.fetch(site.url().replace("http:", "https:"), "us", PictureLimits())
