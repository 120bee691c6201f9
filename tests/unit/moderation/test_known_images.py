from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from support.scenes import random_scene

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import CATEGORIES, ClassifierSpec
from deployments.images import Pixels
from deployments.moderation.known_images import (
    MAX_SCORE,
    MIN_QUALITY,
    KnownImages,
    SkinClassifier,
    fingerprint,
    main,
)

HEX = "f8f8f0cee0f4a84f06370a22038f63f0b36e2ed596621e1d33e6b39c4e9c9b22"


@cache
def cloudy(seed: int) -> Pixels:
    small = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)
    return np.asarray(cv2.resize(small, (640, 480), interpolation=cv2.INTER_CUBIC), np.uint8)


def compress(image: Pixels) -> Any:
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50])[1], cv2.IMREAD_COLOR)


CHANGES: dict[str, Callable[[Pixels], Any]] = {
    "itself": lambda image: image,
    "jpeg": compress,
    "small": lambda image: cv2.resize(image, (256, 192), interpolation=cv2.INTER_AREA),
    "large": lambda image: cv2.resize(image, (1280, 960), interpolation=cv2.INTER_CUBIC),
    "brighter": lambda image: np.clip(image.astype(int) + 20, 0, 255),
    "mirrored": lambda image: image[:, ::-1],
    "turned": np.rot90,
    "turned, mirrored and compressed": lambda image: compress(np.ascontiguousarray(np.rot90(image)[::-1])),
}


def load_list(folder: Path, text: str) -> KnownImages:
    file = folder / "list.txt"
    file.write_text(text)
    return KnownImages(ClassifierSpec("known-images", str(file)))


@pytest.mark.parametrize("change", CHANGES)
def test_changed_image_is_found(change: str, tmp_path: Path) -> None:
    for seed in range(2):
        image = cloudy(seed)
        classifier = load_list(tmp_path, f"{fingerprint(image).text} child safety\n")
        changed = np.ascontiguousarray(CHANGES[change](image), np.uint8)
        assert classifier.classify([changed, cloudy(100 + seed)]) == [{"child safety": 1.0}, {}]


@pytest.mark.parametrize("plain", [np.full((300, 300, 3), 90, np.uint8), np.zeros((3, 400, 3), np.uint8)])
def test_plain_images_match_nothing(plain: Pixels, tmp_path: Path) -> None:
    digest = fingerprint(plain)
    assert digest.quality < MIN_QUALITY
    assert load_list(tmp_path, f"{digest.text} violence\n").classify([plain]) == [{}]


def test_hash_equals_the_reference() -> None:
    """The reference is pdqhash 0.2.8."""
    y, x = np.mgrid[0:96, 0:128]
    image = np.stack([(x * y) % 256, (x * 3 + y * y // 7) % 256, (x * x // 5 + y) % 256], axis=-1).astype(np.uint8)
    digest = fingerprint(image[::4, ::4].repeat(4, axis=0).repeat(4, axis=1))
    assert digest.quality == 100
    reference = 0x734C3B3936562E6D50C165C2A815CB6905BA5963DA76C5EE7A7CD368DB28D248
    assert int.bit_count(int(digest.text, 16) ^ reference) <= 2


def test_list_may_have_comments_and_all_categories(tmp_path: Path) -> None:
    text = fingerprint(cloudy(1)).text
    lines = [f"{text} {category} # of {category}\n {text.upper()}\t{category}\r\n" for category in CATEGORIES]
    classifier = load_list(tmp_path, f"# mine\n\n{HEX} hate\n{''.join(lines)}")
    assert classifier.classify([cloudy(1)]) == [dict.fromkeys(CATEGORIES, 1.0)]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (f"{HEX[1:]} violence", "is not 64 hex digits"),
        (f"{HEX[2:]}-1 violence", "is not 64 hex digits"),
        (f"{HEX} nudity", "'nudity' is no category; they are sexual content, violence"),
        (HEX, "'' is no category"),
    ],
)
def test_invalid_line_is_named(line: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"list.txt, line 3: .*{complaint}"):
        load_list(tmp_path, f"# first\n{HEX} hate\n{line}\n")


def test_list_of_known_images_must_exist_if_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="can't be read"):
        KnownImages(ClassifierSpec("known-images", str(tmp_path / "none.txt")))
    assert KnownImages(ClassifierSpec("known-images")).classify([cloudy(0)]) == [{}]


def test_command_prints_a_line_per_usable_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (100, 100)).save(tmp_path / "plain.png")
    (tmp_path / "text.png").write_text("no image")
    Image.fromarray(cloudy(1)).save(tmp_path / "good #1.png")
    names = [str(tmp_path / name) for name in ("plain.png", "text.png", "none.png", "good #1.png")]
    assert main([*names, "--category", "hate"]) == 1
    printed = capsys.readouterr()
    assert load_list(tmp_path, printed.out).classify([cloudy(1), cloudy(2)]) == [{"hate": 1.0}, {}]
    assert printed.out == f"{fingerprint(cloudy(1)).text} hate  # good #1.png\n"
    assert len(printed.err.splitlines()) == 3
    assert "too plain" in printed.err


SIDE = 512
TONES = [(255, 224, 196), (198, 134, 106), (141, 85, 60), (74, 46, 36)]


def score(image: Pixels) -> float:
    [scores] = SkinClassifier(ClassifierSpec("skin")).classify([image])
    assert list(scores) == ["sexual content"]
    return scores["sexual content"]


@cache
def noise(seed: int, power: float) -> npt.NDArray[np.float64]:
    """Returns (SIDE, SIDE) noise with mean 0 and deviation 1 whose spectrum falls as frequency ** power."""
    waves = np.fft.rfft2(np.random.default_rng(seed).standard_normal((SIDE, SIDE)))
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None] * SIDE, np.fft.rfftfreq(SIDE)[None] * SIDE)
    frequency[0, 0] = np.inf
    values = np.fft.irfft2(waves / frequency**power, s=(SIDE, SIDE))
    return values / values.std()


def pixels(values: npt.NDArray[np.floating]) -> Pixels:
    return np.clip(values, 0, 255).astype(np.uint8)


def body(tone: tuple[int, int, int], fraction: float) -> Pixels:
    """Draws a rounded, finely textured shape over a fraction of a bluish, cloudy ground."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE - 0.5
    tall = np.sqrt(fraction / np.pi / 0.75)
    radius = np.hypot(x / (0.75 * tall), y / tall)
    light = 0.85 + 0.25 * np.sqrt(np.clip(1 - (0.95 * radius) ** 2, 0, 1)) + 0.08 * x
    skin = np.array(tone) * (light * (1 + 0.02 * noise(1, 1)))[..., None]
    ground = np.array([60, 90, 130]) + 25 * noise(2, 1)[..., None]
    inside = cv2.GaussianBlur((radius < 1).astype(np.float64), (0, 0), 1.5)[..., None]
    return pixels(ground * (1 - inside) + skin * inside)


@pytest.mark.parametrize("tone", TONES)
def test_score_follows_the_share_of_skin(tone: tuple[int, int, int]) -> None:
    assert 0.4 < score(body(tone, 0.45)) <= MAX_SCORE
    assert score(body(tone, 0.25)) < 0.25
    assert score(body(tone, 0.06)) == 0
    assert score(body(TONES[1], 0.6)) == MAX_SCORE == 0.6


def test_drawn_scenes_have_no_skin() -> None:
    random = Random(1)
    for index in range(12):
        image = random_scene(random, 1 + index % 3).draw(256, 256)
        assert score(image) < 0.05
        assert score(np.asarray(compress(image), np.uint8)) < 0.3


@pytest.mark.parametrize("tone", TONES)
def test_skin_coloured_surfaces_are_no_skin(tone: tuple[int, int, int]) -> None:
    flat = np.tile(np.array(tone, np.float64), (SIDE, SIDE, 1))
    shaded = flat * np.linspace(0.6, 1, SIDE)[:, None, None]
    rough = flat * (1 + 0.6 * cv2.resize(noise(3, 0), None, fx=2, fy=2)[:SIDE, :SIDE, None])
    grainy = flat + np.random.default_rng(0).normal(0, 3, (SIDE, SIDE, 1))
    assert [score(pixels(surface)) for surface in (flat, shaded, rough, grainy)] == [0, 0, 0, 0]


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 2), (9, 9)])
def test_skin_score_of_any_size(size: tuple[int, int]) -> None:
    assert score(np.full((*size, 3), TONES[1], np.uint8)) == 0
