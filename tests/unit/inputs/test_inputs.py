"""Loader of input files: base64, URLs, redirects, content encodings, and videos."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.fetchers import fetcher
from support.images import encode_image, to_base64
from support.video_encoding import make_video
from support.website import Website

from serve_app.inputs.fetch import FetchLimiter, UrlFetcher
from serve_app.inputs.images import read_image
from serve_app.inputs.inputs import Inputs, InputVideo, read_video
from serve_app.inputs.settings import IMAGES, BadImage, BadVideo, ImageLimits, VideoLimits
from serve_app.inputs.ssrf import UrlGuard

FETCHER = fetcher("127.0.0.0/8")


@pytest.fixture(scope="module")
def inputs() -> Iterator[Inputs]:
    inputs = Inputs(UrlGuard(["127.0.0.0/8"]), decoders=1)
    yield inputs
    inputs.close()


async def test_refusal_says_what_is_accepted(inputs: Inputs) -> None:
    for value in ("***", "aGVsbG8="):
        with pytest.raises(BadImage) as refused:
            await inputs.image(value, "us")
        assert "expected a JPEG, PNG or WebP image as base64, a data: URI or an http(s) URL" in str(refused.value)
        assert "at most 20 MB and 20 megapixels" in str(refused.value)


async def test_image_is_loaded_from_url_and_base64(inputs: Inputs, web: Website) -> None:
    data = encode_image(Image.effect_noise((60, 40), 80), "JPEG")
    url = web.set_page("/cat", data)
    assert await inputs.image(f" {url} ", "us") == await inputs.image(to_base64(data), "us") == read_image(data)


async def test_redirects_are_followed_up_to_the_limit(web: Website) -> None:
    for n, status in ((4, 301), (3, 302), (2, 307), (1, 308)):
        web.set_page(f"/{n}", status=status, location=f"/{n - 1}")
    web.set_page("/0", b"cat")
    assert await FETCHER.fetch(web.url("/3"), "us", ImageLimits()) == b"cat"
    with pytest.raises(BadImage, match="redirects more than 3 times"):
        await FETCHER.fetch(web.url("/4"), "us", ImageLimits())


@pytest.mark.parametrize(("target", "reason"), [(None, "public internet"), ("file:///etc/passwd", "http://")])
async def test_redirect_to_a_refused_url_is_refused(web: Website, target: str | None, reason: str) -> None:
    web.set_page("/", status=302, location=target or web.url("/secret"))
    with pytest.raises(BadImage, match=f"refused.*{reason}"):
        await fetcher("public.test", resolve=resolve_to_loopback).fetch(web.url(host="public.test"), "us", IMAGES)
    assert web.paths == ["/"]


async def resolve_to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("answer", "limits", "reason"),
    [
        ({"status": 204}, IMAGES, "HTTP status 204"),
        ({"status": 404}, IMAGES, "HTTP status 404"),
        ({"body": b"x" * 1_000_001}, ImageLimits(max_bytes=1_000_000), "file is too large"),
        ({"body": b"short", "content_length": "500"}, IMAGES, "could not be fetched"),
        ({"status": 302, "location": "http:////x]y"}, IMAGES, "redirects to an invalid URL"),
        ({"body": b"x", "delay_s": 1.0}, ImageLimits(timeout_s=0.2), r"within 0\.2 s"),
    ],
)
async def test_response_without_a_whole_file_is_refused(
    web: Website, answer: dict[str, Any], limits: ImageLimits, reason: str
) -> None:
    with pytest.raises(BadImage, match=reason):
        await FETCHER.fetch(web.set_page("/", **answer), "us", limits)


BODY = bytes(range(256)) * 100


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        *(("gzip", gzip.compress), ("GZIP", gzip.compress), ("br", brotli.compress)),
        *(("deflate", zlib.compress), ("deflate", raw_deflate)),
    ],
    ids=["gzip", "upper case", "br", "deflate", "deflate without header"],
)
async def test_encoded_body_is_decoded_up_to_the_byte_limit(
    web: Website, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    url = web.set_page("/a.png", compress(BODY), content_encoding=encoding)
    assert await FETCHER.fetch(url, "us", ImageLimits(max_bytes=len(BODY))) == BODY


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        ("gzip", gzip.compress(bytes(50 * 2**20)), "too large"),
        ("gzip", b"no gzip at all", "not encoded as its Content-Encoding says"),
        ("br", brotli.compress(bytes(50 * 2**20)), "too large"),
        ("br", b"no brotli at all", "not encoded as its Content-Encoding says"),
        ("zstd", b"x", "the encoding 'zstd'; expected none, gzip, deflate or br"),
    ],
    ids=["gzip bomb", "no gzip", "br bomb", "no br", "zstd"],
)
async def test_body_that_can_not_be_decoded_is_refused(web: Website, encoding: str, body: bytes, reason: str) -> None:
    url = web.set_page("/a.png", body, content_encoding=encoding)
    with pytest.raises(BadImage, match=reason):
        await FETCHER.fetch(url, "us", ImageLimits(max_bytes=2**20))


async def test_user_agent_names_the_service(web: Website) -> None:
    fetcher = UrlFetcher(UrlGuard(["127.0.0.0/8"]), FetchLimiter(), "https://media.example.com")
    await fetcher.fetch(web.set_page("/a.png", b"x"), "us", IMAGES)
    [agent] = web.agents
    assert agent is not None
    assert agent.startswith("gen-serve/")
    assert agent.endswith(" (+https://media.example.com)")


async def test_refusal_says_why_no_connection_was_made(web: Website) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        for url, reason in (
            (f"http://127.0.0.1:{bound.getsockname()[1]}/", "the connection was refused"),
            ("http://127.0.0.1:bad/", "could not be fetched"),
            (web.url().replace("http:", "https:"), "does not speak TLS there"),
        ):
            with pytest.raises(BadImage, match=reason):
                await FETCHER.fetch(url, "us", IMAGES)


VIDEO = make_video("testsrc=s=96x64:d=1:r=24", audio="sine=d=1")
SMALL = VideoLimits(max_seconds=1.0, min_side=64, max_side=100)


@pytest.fixture(autouse=True)
def _no_temporary_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr("serve_app.inputs.inputs.tempfile.tempdir", str(tmp_path))
        yield
    assert not list(tmp_path.iterdir())


async def test_video_is_loaded_from_url_base64_and_data_uri(inputs: Inputs, web: Website) -> None:
    url, text = web.set_page("/video", VIDEO), to_base64(VIDEO)
    for value in (f" {text}\n", f"data:video/mp4;base64,{text}", f" {url} "):
        video = await inputs.video(value, "us")
        assert video == InputVideo(VIDEO, 96, 64, video.seconds)
    assert (video.content_type, video.extension) == ("video/mp4", "mp4")
    assert "data" not in repr(video)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("s=96x64:d=1.05:r=24", "too long"),
        ("s=96x62:d=0.5:r=24", "96x62 pixels"),
        ("s=102x64:d=0.5:r=24", "102x64 pixels"),
        ("s=64x64:d=0.5:r=24,setsar=2", "128x64 pixels"),
    ],
)
def test_video_beyond_the_limits_is_refused(source: str, problem: str) -> None:
    with pytest.raises(BadVideo, match=problem) as refused:
        read_video(make_video(f"testsrc={source}"), SMALL)
    assert "at most 50 MB, from 1/24 s to 1 s long, with sides from 64 to 100 pixels" in str(refused.value)


@pytest.mark.parametrize("source", ["s=100x64:d=1:r=24", "s=64x100:d=1:r=60", "s=64x64:d=0.04:r=24"])
def test_video_just_within_the_limits_is_accepted(source: str) -> None:
    assert read_video(make_video(f"testsrc={source}"), SMALL).height <= 100


def test_slow_video_is_refused() -> None:
    with pytest.raises(BadVideo, match="can't be read in 0 s"):
        read_video(VIDEO, VideoLimits(max_decode_s=0.0))


async def test_byte_limit_of_videos_holds_for_url_and_base64(inputs: Inputs, web: Website) -> None:
    enough, little = VideoLimits(max_bytes=len(VIDEO)), VideoLimits(max_bytes=len(VIDEO) - 1)
    for value in (to_base64(VIDEO), web.set_page("/", VIDEO)):
        assert (await inputs.video(value, "us", enough)).data == VIDEO
        with pytest.raises(BadVideo, match="file is too large"):
            await inputs.video(value, "us", little)


@settings(max_examples=25)
@given(st.binary(min_size=1, max_size=300), st.integers(0, len(VIDEO)))
def test_damaged_video_is_read_or_refused(junk: bytes, start: int) -> None:
    try:
        video = read_video(VIDEO[:start] + junk + VIDEO[start + len(junk) :])
    except BadVideo:
        return
    assert min(video.width, video.height) >= 64


def test_video_that_takes_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    large = make_video("testsrc=s=4096x4096:d=0.05:r=24", "-preset", "ultrafast")
    assert read_video(large).width == 4096
    monkeypatch.setattr("deployments.video.reader._MAX_ADDRESSES", 200 * 2**20)
    with pytest.raises(BadVideo, match="no video that can be read"):
        read_video(large)


async def test_videos_of_one_organization_leave_a_thread_to_others(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, slow = threading.Event(), VIDEO[:-1]

    def read(data: bytes, limits: VideoLimits) -> InputVideo:
        if data == slow:
            assert end.wait(60)
        return InputVideo(data, 96, 64, 1.0)

    monkeypatch.setattr("serve_app.inputs.inputs.read_video", read)
    hostile = [asyncio.create_task(inputs.video(slow, "hostile")) for _ in range(4)]
    assert (await inputs.video(VIDEO, "honest")).data == VIDEO
    assert not any(each.done() for each in hostile)
    end.set()
    await asyncio.gather(*hostile)
