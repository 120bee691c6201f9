"""What clients send in place of a file, what hosts of pictures answer, and what they are told."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.fetching import fetcher
from support.pictures import encoded, file_of, picture
from support.website import Website
from video_making import made

from serve_app.inputs.fetch import Fetcher, FetchTurns
from serve_app.inputs.images import read_image
from serve_app.inputs.inputs import Inputs, InputVideo, read_video
from serve_app.inputs.settings import BadPicture, BadVideo, PictureLimits, VideoLimits
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


VIDEO = made("testsrc=s=96x64:d=1:r=24", sound="sine=d=1")
SMALL = VideoLimits(max_seconds=1.0, min_side=64, max_side=100)


@pytest.fixture(autouse=True)
def _no_files_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = tmp_path / "kept"
    kept.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("serve_app.inputs.inputs.tempfile.tempdir", str(kept))
        yield
    assert not list(kept.iterdir())


@pytest.fixture
def inputs_videos() -> Iterator[Inputs]:
    gate = Inputs(UrlGuard(["127.0.0.0/8"]), decoders=1)
    yield gate
    gate.close()


async def test_every_way_to_send_a_video(inputs_videos: Inputs, web: Website) -> None:
    web.put("/clip", VIDEO)
    text = encoded(VIDEO)
    for value in (text, f" {text}\n", f"data:video/mp4;base64,{text}", web.url("/clip"), f" {web.url('/clip')} "):
        video = await inputs_videos.video(value, "us")
        assert video == InputVideo(VIDEO, 96, 64)
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
        read_video(made(source), SMALL)
    assert "at most 50 MB, from 1/24 s to 1 s long, with sides from 64 to 100 pixels" in str(refused.value)


@pytest.mark.parametrize(
    "source", ["testsrc=s=100x64:d=1:r=24", "testsrc=s=64x100:d=1:r=60", "testsrc=s=64x64:d=0.04:r=24"]
)
def test_videos_just_within_the_limits(source: str) -> None:
    assert read_video(made(source), SMALL).height <= 100


def test_decoding_has_an_end() -> None:
    with pytest.raises(BadVideo, match="can't be read in 0 s"):
        read_video(VIDEO, VideoLimits(max_decode_s=0.0))


@pytest.mark.parametrize(("value", "problem"), [("***", "base64"), ("http://127.0.0.1:1/", "could not be fetched")])
async def test_values_that_hold_no_file(inputs_videos: Inputs, value: str, problem: str) -> None:
    with pytest.raises(BadVideo, match=problem):
        await inputs_videos.video(value, "us")


async def test_byte_limit_on_both_sides(inputs_videos: Inputs, web: Website) -> None:
    web.put("/", VIDEO)
    enough, little = VideoLimits(max_bytes=len(VIDEO)), VideoLimits(max_bytes=len(VIDEO) - 1)
    for value in (encoded(VIDEO), web.url()):
        assert (await inputs_videos.video(value, "us", enough)).data == VIDEO
        with pytest.raises(BadVideo, match="file is too large"):
            await inputs_videos.video(value, "us", little)


@settings(max_examples=25)
@given(st.binary(min_size=1, max_size=300), st.integers(0, len(VIDEO)))
def test_spoilt_bytes_never_raise_anything_else(junk: bytes, start: int) -> None:
    try:
        video = read_video(VIDEO[:start] + junk + VIDEO[start + len(junk) :])
    except BadVideo:
        return
    assert min(video.width, video.height) >= 64


def test_reading_has_bounds_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = made("testsrc=s=4096x4096:d=0.05:r=24", "-preset", "ultrafast")
    assert read_video(large).width == 4096
    monkeypatch.setattr("deployments.video.reader._MOST_ADDRESSES", 200 * 2**20)
    with pytest.raises(BadVideo, match="no video that can be read"):
        read_video(large)


async def test_the_videos_of_one_organization_leave_room_for_others(inputs_videos: Inputs) -> None:
    slow = encoded(made("testsrc=s=1920x1080:d=3:r=24", "-preset", "ultrafast"))
    hostile = [asyncio.create_task(inputs_videos.video(slow, "hostile")) for _ in range(4)]
    assert (await inputs_videos.video(encoded(VIDEO), "honest")).width == 96
    assert not all(each.done() for each in hostile)
    await asyncio.gather(*hostile)
