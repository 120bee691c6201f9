"""What clients send in place of a file, what hosts of images answer, and what they are told."""

from __future__ import annotations

import asyncio
import gzip
import socket
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
from support.images import encode_image, image_file, to_base64
from support.website import Website
from video_making import make_video

from serve_app.inputs.fetch import FetchLimiter, UrlFetcher
from serve_app.inputs.images import read_image
from serve_app.inputs.inputs import Inputs, InputVideo, read_video
from serve_app.inputs.settings import BadImage, BadVideo, ImageLimits, VideoLimits
from serve_app.inputs.ssrf import UrlGuard

IMAGE = Image.effect_noise((60, 40), 80)


@pytest.fixture
def gate() -> Iterator[Callable[[UrlGuard], Inputs]]:
    instances: list[Inputs] = []

    def make(guard: UrlGuard) -> Inputs:
        instances.append(Inputs(guard, decoders=1))
        return instances[-1]

    yield make
    for each in instances:
        each.close()


@pytest.fixture
def inputs(gate: Callable[[UrlGuard], Inputs]) -> Inputs:
    return gate(UrlGuard(["127.0.0.0/8"]))


async def test_what_would_be_accepted_is_told(inputs: Inputs) -> None:
    for value in ("***", "caf\u00e9", "aGVsbG8=", to_base64(image_file(64, 48))[:50]):
        with pytest.raises(BadImage) as refused:
            await inputs.image(value, "us")
        assert "expected a JPEG, PNG or WebP image as base64, a data: URI or an http(s) URL" in str(refused.value)
        assert "at most 20 MB and 20 megapixels" in str(refused.value)


async def test_url_and_base64_load_alike(inputs: Inputs, web: Website) -> None:
    data = encode_image(IMAGE, "JPEG")
    web.set_page("/cat", data)
    fetched = await inputs.image(f" {web.url('/cat')} ", "us")
    assert fetched == read_image(data)
    assert await inputs.image(to_base64(data), "us") == fetched


async def test_redirects_are_followed_up_to_the_limit(inputs: Inputs, web: Website) -> None:
    for n, status in ((4, 301), (3, 302), (2, 307), (1, 308)):
        web.set_page(f"/{n}", status=status, location=f"/{n - 1}")
    web.set_page("/0", encode_image(IMAGE, "PNG"))
    assert (await inputs.image(web.url("/3"), "us")).width == 60
    with pytest.raises(BadImage, match="redirects more than 3 times"):
        await inputs.image(web.url("/4"), "us")


async def test_a_redirect_to_an_inside_address_is_refused(gate: Callable[[UrlGuard], Inputs], web: Website) -> None:
    inputs = gate(UrlGuard(["public.test"], resolve=_one_name_public))
    web.set_page("/", status=302, location=web.url("/secret"))
    with pytest.raises(BadImage, match=r"refused.*public internet"):
        await inputs.image(web.url(host="public.test"), "us")
    web.set_page("/", status=302, location="file:///etc/passwd")
    with pytest.raises(BadImage, match=r"refused.*http://"):
        await inputs.image(web.url(host="public.test"), "us")
    assert web.paths == ["/", "/"]


async def _one_name_public(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("answer", "limits", "reason"),
    [
        ({"status": 204}, ImageLimits(), "HTTP status 204"),
        ({"status": 404}, ImageLimits(), "HTTP status 404"),
        ({"body": b"x" * 3_000_000}, ImageLimits(max_bytes=1_000_000), "file is too large"),
        ({"body": b"short", "content_length": "500"}, ImageLimits(), "could not be fetched"),
        ({"status": 302, "location": "http:////x]y"}, ImageLimits(), "redirects to an invalid URL"),
        ({"body": b"x", "delay_s": 1.0}, ImageLimits(timeout_s=0.2), r"within 0\.2 s"),
    ],
)
async def test_answers_that_are_no_file(
    inputs: Inputs, web: Website, answer: dict[str, Any], limits: ImageLimits, reason: str
) -> None:
    web.set_page("/", **answer)
    with pytest.raises(BadImage, match=reason):
        await inputs.image(web.url(), "us", limits)


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
    url = web.set_page("/a.png", compress(BODY), content_encoding=encoding)
    assert await FETCHER.fetch(url, "us", ImageLimits()) == BODY
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
    ids=["a bomb", "no gzip", "a bomb of br", "no br", "zstd"],
)
async def test_what_unfolds_too_far_or_not_at_all_is_refused(
    web: Website, encoding: str, body: bytes, reason: str
) -> None:
    url = web.set_page("/a.png", body, content_encoding=encoding)
    with pytest.raises(BadImage, match=reason):
        await FETCHER.fetch(url, "us", ImageLimits(max_bytes=2**20))


async def test_hosts_are_told_who_asks(web: Website) -> None:
    telling = UrlFetcher(UrlGuard(["127.0.0.0/8"]), FetchLimiter(), "https://media.example.com")
    await telling.fetch(web.set_page("/a.png", b"x"), "us", ImageLimits())
    [agent] = web.agents
    assert agent is not None
    assert agent.startswith("gen-serve/")
    assert agent.endswith(" (+https://media.example.com)")


async def test_why_there_is_no_connection_is_said(web: Website) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(BadImage, match="the connection was refused"):
            await FETCHER.fetch(f"http://127.0.0.1:{bound.getsockname()[1]}/", "us", ImageLimits())
    with pytest.raises(BadImage, match="could not be fetched"):
        await FETCHER.fetch("http://127.0.0.1:bad/", "us", ImageLimits())
    with pytest.raises(BadImage, match="does not speak TLS there"):
        await FETCHER.fetch(web.url().replace("http:", "https:"), "us", ImageLimits())


VIDEO = make_video("testsrc=s=96x64:d=1:r=24", audio="sine=d=1")
SMALL = VideoLimits(max_seconds=1.0, min_side=64, max_side=100)


@pytest.fixture(autouse=True)
def _assert_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "kept"
    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("serve_app.inputs.inputs.tempfile.tempdir", str(folder))
        yield
    assert not list(folder.iterdir())


async def test_every_way_to_send_a_video(inputs: Inputs, web: Website) -> None:
    web.set_page("/video", VIDEO)
    text = to_base64(VIDEO)
    for value in (text, f" {text}\n", f"data:video/mp4;base64,{text}", web.url("/video"), f" {web.url('/video')} "):
        video = await inputs.video(value, "us")
        assert video == InputVideo(VIDEO, 96, 64, video.seconds)
    assert (video.content_type, video.extension) == ("video/mp4", "mp4")
    assert "data" not in repr(video)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("testsrc=s=96x64:d=1.05:r=24", "too long"),
        ("testsrc=s=96x62:d=0.5:r=24", "96x62 pixels"),
        ("testsrc=s=102x64:d=0.5:r=24", "102x64 pixels"),
        ("testsrc=s=64x64:d=0.5:r=24,setsar=2", "128x64 pixels"),
    ],
)
def test_videos_over_the_limits(source: str, problem: str) -> None:
    with pytest.raises(BadVideo, match=problem) as refused:
        read_video(make_video(source), SMALL)
    assert "at most 50 MB, from 1/24 s to 1 s long, with sides from 64 to 100 pixels" in str(refused.value)


@pytest.mark.parametrize(
    "source", ["testsrc=s=100x64:d=1:r=24", "testsrc=s=64x100:d=1:r=60", "testsrc=s=64x64:d=0.04:r=24"]
)
def test_videos_just_within_the_limits(source: str) -> None:
    assert read_video(make_video(source), SMALL).height <= 100


def test_decoding_has_an_end() -> None:
    with pytest.raises(BadVideo, match="can't be read in 0 s"):
        read_video(VIDEO, VideoLimits(max_decode_s=0.0))


async def test_byte_limit_on_both_sides(inputs: Inputs, web: Website) -> None:
    web.set_page("/", VIDEO)
    enough, little = VideoLimits(max_bytes=len(VIDEO)), VideoLimits(max_bytes=len(VIDEO) - 1)
    for value in (to_base64(VIDEO), web.url()):
        assert (await inputs.video(value, "us", enough)).data == VIDEO
        with pytest.raises(BadVideo, match="file is too large"):
            await inputs.video(value, "us", little)


@settings(max_examples=25)
@given(st.binary(min_size=1, max_size=300), st.integers(0, len(VIDEO)))
def test_spoilt_bytes_never_raise_anything_else(junk: bytes, start: int) -> None:
    try:
        video = read_video(VIDEO[:start] + junk + VIDEO[start + len(junk) :])
    except BadVideo:
        return
    assert min(video.width, video.height) >= 64


def test_reading_has_bounds_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = make_video("testsrc=s=4096x4096:d=0.05:r=24", "-preset", "ultrafast")
    assert read_video(large).width == 4096
    monkeypatch.setattr("deployments.video.reader._MAX_ADDRESSES", 200 * 2**20)
    with pytest.raises(BadVideo, match="no video that can be read"):
        read_video(large)


async def test_the_videos_of_one_organization_leave_room_for_others(inputs: Inputs) -> None:
    slow = to_base64(make_video("testsrc=s=1920x1080:d=3:r=24", "-preset", "ultrafast"))
    hostile = [asyncio.create_task(inputs.video(slow, "hostile")) for _ in range(4)]
    assert (await inputs.video(to_base64(VIDEO), "honest")).width == 96
    assert not all(each.done() for each in hostile)
    await asyncio.gather(*hostile)
