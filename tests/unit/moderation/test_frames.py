from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from support.pictures import file_of
from video_making import made

from deployments.images import Pixels
from deployments.moderation import frames
from deployments.moderation.frames import FRAME_SIDE, MOST_FRAMES, UnreadableError, is_video, pictures_of, spread


def coloured(*colours: str) -> bytes:
    """A second of each."""
    parts = "".join(f"color={name}:s=128x96:d=1:r=10[{name}];" for name in colours)
    joined = "".join(f"[{name}]" for name in colours)
    return made(f"{parts}{joined}concat=n={len(colours)}")


def mean(picture: Pixels) -> tuple[int, ...]:
    return tuple(round(float(value)) for value in picture.mean((0, 1)))


def test_a_video_is_looked_at_every_second() -> None:
    found = pictures_of(coloured("red", "lime", "blue", "white"), "results/video.mp4")
    assert all(picture.shape == (96, 128, 3) for picture in found)
    means = [mean(picture) for picture in found]
    wanted = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (255, 255, 255)]
    assert means == [pytest.approx(colour, abs=12) for colour in wanted]


def test_large_frames_come_small() -> None:
    [found] = pictures_of(made("testsrc=s=640x360:d=0.04:r=25"), "video/mp4; codecs=avc1")
    assert found.shape == (288, FRAME_SIDE, 3)


@pytest.mark.parametrize("index_first", [True, False])
def test_a_video_cut_short_is_not_moderated(index_first: bool) -> None:
    options = ("-movflags", "+faststart") if index_first else ()
    data = made("testsrc=s=320x240:d=3:r=10", *options)
    for spoilt in (data[: int(len(data) * 0.95)], b"", b"no video"):
        with pytest.raises(UnreadableError, match="no video that can be read"):
            pictures_of(spoilt, "video/mp4")


def test_a_video_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    data = coloured("red")
    monkeypatch.setattr(frames, "_VIDEO_SECONDS", 0.0)
    with pytest.raises(UnreadableError, match="can't be read in 0 s"):
        pictures_of(data, "video/mp4")


def test_a_still_keeps_its_size() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (700, 900, 3), np.uint8)
    [found] = pictures_of(file_of(Image.fromarray(pixels), "PNG"), "image/png")
    assert np.array_equal(found, pixels)


def test_what_is_transparent_shows_white() -> None:
    picture = Image.new("RGBA", (4, 2), (255, 0, 0, 0))
    picture.putpixel((0, 0), (255, 0, 0, 255))
    [found] = pictures_of(file_of(picture, "PNG"), "key.png")
    assert found[0, 0].tolist() == [255, 0, 0]
    assert (found[1] == 255).all()


def test_sixteen_bits_are_not_all_white() -> None:
    values = np.linspace(0, 65535, 256 * 4).astype(np.uint16).reshape(4, 256)
    [found] = pictures_of(file_of(Image.fromarray(values), "PNG"), "image/png")
    assert np.array_equal(found[..., 1], values >> 8)


def test_a_picture_on_its_side_is_turned_upright() -> None:
    picture = Image.new("RGB", (40, 20))
    exif = picture.getexif()
    exif[0x0112] = 6
    assert pictures_of(file_of(picture, "JPEG", exif=exif), "image/jpeg")[0].shape == (40, 20, 3)


@pytest.mark.parametrize(("kind", "count"), [("GIF", 50), ("WEBP", 2), ("PNG", 2)])
def test_animations_are_looked_at_from_first_to_last(kind: str, count: int) -> None:
    first, *more = [Image.new("RGB", (600, 30), (0, 5 * index, 0)) for index in range(count)]
    found = pictures_of(file_of(first, kind, save_all=True, append_images=more), f"image/{kind.lower()}")
    assert len(found) == min(count, MOST_FRAMES)
    assert {picture.shape for picture in found} == {(26, FRAME_SIDE, 3)}
    greens = [mean(picture)[1] for picture in found]
    assert greens == sorted(greens)
    assert greens[0] == pytest.approx(0, abs=4)
    assert greens[-1] == pytest.approx(5 * (count - 1), abs=4)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_cut_short_is_not_moderated(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    data = file_of(Image.fromarray(pixels), kind)
    with pytest.raises(UnreadableError):
        pictures_of(data[: len(data) // 2], "picture")


@pytest.mark.parametrize("name", ["video/mp4", "VIDEO/MP4; codecs=avc1", "a/b/result.mp4", "B.MP4"])
def test_videos_by_name(name: str) -> None:
    assert is_video(name)
    assert not is_video(name.replace("video", "image").replace("VIDEO", "image").replace(".", "_"))


@pytest.mark.parametrize(
    ("count", "wanted"), [(1, [0]), (2, [0, 1]), (24, [0, 23]), (25, [0, 24]), (26, [0, 24, 25]), (60, [0, 24, 48, 59])]
)
def test_one_frame_a_second_and_the_last(count: int, wanted: list[int]) -> None:
    assert spread(count) == wanted


@pytest.mark.parametrize("count", [746, 2880])
def test_of_long_videos_frames_from_all_over_them(count: int) -> None:
    chosen = spread(count)
    assert len(chosen) == MOST_FRAMES
    assert (chosen[0], chosen[-1]) == (0, count - 1)
    gaps = np.diff(chosen)
    assert gaps.max() - gaps.min() <= 1


def test_a_video_that_is_too_long_is_not_moderated_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_LONGEST_S", 1.0)
    assert pictures_of(coloured("red"), "video/mp4")
    with pytest.raises(UnreadableError, match="longer than 1 s"):
        pictures_of(coloured("red", "red"), "video/mp4")
