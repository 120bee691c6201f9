from __future__ import annotations

import io

import pytest
from PIL import Image
from support.hostile_pictures import png_chunk, png_with, repeated_scan, webp_with
from support.pictures import file_of

from serve_app.inputs.images import MAX_FRAMES, MAX_PARTS, MAX_SCANS, TooMuchWork, Unreadable, read_image, scans
from serve_app.inputs.settings import PictureLimits

NOISE = Image.effect_noise((64, 48), 80)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("restarts", [0, 1])
def test_scans_are_counted(progressive: bool, restarts: int) -> None:
    data = file_of(NOISE.convert("RGB"), "JPEG", progressive=progressive, restart_marker_rows=restarts)
    assert scans(data) == (10 if progressive else 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("behind", [b"\xff\xda\x00\x08" * 1000, bytes(12 * MAX_PARTS)], ids=["scans", "zeros"])
def test_what_follows_a_picture_is_not_counted(kind: str, behind: bytes) -> None:
    assert scans(file_of(NOISE, kind) + behind) == 1


def test_what_stands_in_a_segment_is_not_counted() -> None:
    thumbnail = file_of(NOISE, "JPEG", progressive=True) * 40
    assert scans(file_of(NOISE, "JPEG", comment=thumbnail[:60_000])) == 1


def test_scans_are_bounded() -> None:
    enough = MAX_SCANS - scans(repeated_scan(64, 0))
    assert scans(repeated_scan(64, enough)) == MAX_SCANS
    with pytest.raises(TooMuchWork, match="more than 100 scans"):
        scans(repeated_scan(64, enough + 1))


def test_large_pictures_may_have_fewer_scans() -> None:
    data = repeated_scan(64, 30)
    assert read_image(data).width == 64
    with pytest.raises(Unreadable, match="too many scans for its size"):
        read_image(data, PictureLimits(max_pixels=64 * 64))


@pytest.mark.parametrize(
    "data",
    [
        file_of(NOISE, "JPEG").replace(b"\xff\xda", b"\xff\xfe\x00\x02" * (MAX_PARTS + 1) + b"\xff\xda", 1),
        png_with(png_chunk(b"tEXt") * (MAX_PARTS + 1)),
        webp_with(b"JUNK\0\0\0\0" * (MAX_PARTS + 1)),
    ],
    ids=["JPEG", "PNG", "WEBP"],
)
def test_parts_are_bounded(data: bytes) -> None:
    with pytest.raises(TooMuchWork, match="parts"):
        scans(data)


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_frames_are_bounded(kind: str) -> None:
    def film(frames: int) -> bytes:
        shown = [Image.new("L", (1, 1), n % 256) for n in range(frames)]
        buffer = io.BytesIO()
        shown[0].save(buffer, kind, save_all=True, append_images=shown[1:], lossless=True)
        return buffer.getvalue()

    assert scans(film(MAX_FRAMES)) == 1
    with pytest.raises(TooMuchWork, match="frames"):
        scans(film(MAX_FRAMES + 1))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_any_part_of_a_file_can_be_looked_at(kind: str) -> None:
    data = file_of(NOISE, kind)
    for length in range(0, len(data), 7):
        assert scans(data[:length]) == 1
