from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from support.images import ORIENTATION_TAG, encode_image
from support.video_encoding import make_video

from deployments.images import Pixels
from deployments.moderation import frames
from deployments.moderation.frames import UnreadableError, decode_images, is_video
from deployments.video.writer import FRAME_SIDE, MAX_SAMPLES, frame_indices


def make_colour_video(*colours: str) -> bytes:
    """Makes a video with one second of each colour."""
    parts = "".join(f"color={name}:s=128x96:d=1:r=10[{name}];" for name in colours)
    streams = "".join(f"[{name}]" for name in colours)
    return make_video(f"{parts}{streams}concat=n={len(colours)}")


def mean(image: Pixels) -> tuple[int, ...]:
    return tuple(round(float(value)) for value in image.mean((0, 1)))


def test_video_is_sampled_every_second() -> None:
    frames = decode_images(make_colour_video("red", "lime", "blue", "white"), "results/video.mp4")
    assert all(image.shape == (96, 128, 3) for image in frames)
    means = [mean(image) for image in frames]
    expected = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (255, 255, 255)]
    assert means == [pytest.approx(colour, abs=12) for colour in expected]


def test_large_frames_are_shrunk() -> None:
    [frame] = decode_images(make_video("testsrc=s=640x360:d=0.04:r=25"), "video/mp4; codecs=avc1")
    assert frame.shape == (288, FRAME_SIDE, 3)


@pytest.mark.parametrize("index_first", [True, False])
def test_truncated_video_is_unreadable(index_first: bool) -> None:
    options = ("-movflags", "+faststart") if index_first else ()
    data = make_video("testsrc=s=320x240:d=3:r=10", *options)
    for spoilt in (data[: int(len(data) * 0.95)], b"", b"no video"):
        with pytest.raises(UnreadableError, match="no video that can be read"):
            decode_images(spoilt, "video/mp4")


def test_slow_or_long_video_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_MAX_VIDEO_S", 1.0)
    assert decode_images(make_colour_video("red"), "video/mp4")
    with pytest.raises(UnreadableError, match="longer than 1 s"):
        decode_images(make_colour_video("red", "red"), "video/mp4")
    monkeypatch.setattr(frames, "_VIDEO_TIMEOUT_S", 0.0)
    with pytest.raises(UnreadableError, match="can't be read in 0 s"):
        decode_images(make_colour_video("red"), "video/mp4")


def test_image_is_decoded_as_viewers_show_it() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (700, 900, 3), np.uint8)
    [frame] = decode_images(encode_image(Image.fromarray(noise), "PNG"), "image/png")
    assert np.array_equal(frame, noise)
    transparent = Image.new("RGBA", (4, 2), (255, 0, 0, 0))
    transparent.putpixel((0, 0), (255, 0, 0, 255))
    [frame] = decode_images(encode_image(transparent, "PNG"), "key.png")
    assert frame[0, 0].tolist() == [255, 0, 0]
    assert (frame[1] == 255).all()
    wide = np.linspace(0, 65535, 256 * 4).astype(np.uint16).reshape(4, 256)
    [frame] = decode_images(encode_image(Image.fromarray(wide), "PNG"), "image/png")
    assert np.array_equal(frame[..., 1], wide >> 8)
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    [frame] = decode_images(encode_image(Image.new("RGB", (40, 20)), "JPEG", exif=exif), "image/jpeg")
    assert frame.shape == (40, 20, 3)


@pytest.mark.parametrize(("kind", "count"), [("GIF", 50), ("WEBP", 2), ("PNG", 2)])
def test_animation_is_sampled_from_first_to_last(kind: str, count: int) -> None:
    first, *more = [Image.new("RGB", (600, 30), (0, 5 * index, 0)) for index in range(count)]
    frames = decode_images(encode_image(first, kind, save_all=True, append_images=more), f"image/{kind.lower()}")
    assert len(frames) == min(count, MAX_SAMPLES)
    assert {image.shape for image in frames} == {(26, FRAME_SIDE, 3)}
    greens = [mean(image)[1] for image in frames]
    assert greens == sorted(greens)
    assert greens[0] == pytest.approx(0, abs=4)
    assert greens[-1] == pytest.approx(5 * (count - 1), abs=4)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_truncated_image_is_unreadable(kind: str) -> None:
    data = encode_image(Image.effect_noise((80, 60), 90), kind)
    with pytest.raises(UnreadableError):
        decode_images(data[: len(data) // 2], "image")


@pytest.mark.parametrize("name", ["video/mp4", "VIDEO/MP4; codecs=avc1", "a/b/result.mp4", "B.MP4"])
def test_video_is_recognized_by_name(name: str) -> None:
    assert is_video(name)
    assert not is_video(name.replace("video", "image").replace("VIDEO", "image").replace(".", "_"))


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [0]), (2, [0, 1]), (24, [0, 23]), (25, [0, 24]), (26, [0, 24, 25]), (60, [0, 24, 48, 59])],
)
def test_frame_indices_are_one_a_second_and_the_last(count: int, expected: list[int]) -> None:
    assert frame_indices(count) == expected


@pytest.mark.parametrize("count", [746, 2880])
def test_long_video_is_sampled_evenly(count: int) -> None:
    indices = frame_indices(count)
    assert len(indices) == MAX_SAMPLES
    assert (indices[0], indices[-1]) == (0, count - 1)
    gaps = np.diff(indices)
    assert gaps.max() - gaps.min() <= 1
