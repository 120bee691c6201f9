"""Image classifiers without weights: perceptual hashes of known images, and the share of skin.

The hash is PDQ (Facebook, 2019; github.com/facebook/ThreatExchange, pdq/): whether each of 16 x 16 low frequencies of a
64 x 64 luma exceeds their median. Lists of PDQ hashes can be used unchanged. The package pdqhash is not used, as it
must be compiled on Linux.

A list is a text file with an entry per line, 64 hex digits and a category, and `#` comments. To print lines for it:
`python -m deployments.moderation.known_images IMAGE... --category NAME`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import CATEGORIES, ClassifierSpec, Scores
from deployments.images import Pixels, open_image

MATCH: Final = 31
"""Bits of 256 in which an image and an entry may differ: PDQ's own threshold."""
MIN_QUALITY: Final = 50
"""Quality, of 100, that PDQ recommends: in plainer images noise decides too many bits."""
_DIGITS: Final = 64
_LUMA: Final = 64
_MAX_SIDE: Final = 1024
"""Pixels that longer sides are shrunk to, as the time of the blur grows with the image."""
_SIGNS: Final = np.where(np.arange(1, 17) % 2, -1, 1)
"""Mirroring changes the sign of every odd frequency."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Hashes of an image and its rotations and mirrorings, (8, 32) bytes. The first is its own, which goes on lists."""

    hashes: npt.NDArray[np.uint8]
    quality: int
    """0 to 100, the amount of detail."""

    @property
    def is_reliable(self) -> bool:
        return self.quality >= MIN_QUALITY

    @property
    def text(self) -> str:
        return self.hashes[0].tobytes().hex()


class KnownImages:
    """Scores 1 in the category of a listed image. Without a checkpoint the list is empty."""

    def __init__(self, spec: ClassifierSpec) -> None:
        """Raises CheckpointError."""
        entries = [] if spec.checkpoint is None else read(Path(spec.checkpoint))
        self._hashes = np.frombuffer(b"".join(digest for digest, _ in entries), np.uint64).reshape(-1, 4)
        self._categories = [category for _, category in entries]

    def classify(self, images: Sequence[Pixels]) -> list[Scores]:
        return [self._scores(fingerprint(image)) if self._categories else {} for image in images]

    def _scores(self, image: Fingerprint) -> Scores:
        if not image.is_reliable:
            return {}
        differing = [np.bitwise_count(self._hashes ^ variant).sum(axis=1) for variant in image.hashes.view(np.uint64)]
        return {self._categories[entry]: 1.0 for entry in np.flatnonzero(np.min(differing, axis=0) <= MATCH)}


def read(path: Path) -> list[tuple[bytes, str]]:
    """Returns hashes and their categories. Raises CheckpointError with the number of a bad line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} can't be read as a list of known images: {error}") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        digits, _, category = " ".join(line.partition("#")[0].split()).partition(" ")
        if not digits:
            continue
        if len(digits) != _DIGITS or set(digits.lower()) - set("0123456789abcdef"):
            raise CheckpointError(f"{path}, line {number}: {digits[:80]!r} is not {_DIGITS} hex digits")
        if category not in CATEGORIES:
            names = ", ".join(CATEGORIES)
            raise CheckpointError(f"{path}, line {number}: {category[:80]!r} is no category; they are {names}")
        entries.append((bytes.fromhex(digits), category))
    return entries


def fingerprint(image: Pixels) -> Fingerprint:
    luma = _small_luma(image)
    # Without the constant frequency, which is only brightness.
    waves = np.asarray(cv2.dct(luma), np.float32)[1:17, 1:17]
    mirrors = (waves, waves * _SIGNS, waves * _SIGNS[:, None], waves * _SIGNS * _SIGNS[:, None])
    hashes = np.stack([_bits(variant) for each in mirrors for variant in (each, each.T)])
    # PDQ's measure: differences of neighbours, truncated to whole percents so that noise does not add up.
    steps = [np.trunc(np.diff(luma, axis=axis) * np.float32(100 / 255)) for axis in (0, 1)]
    return Fingerprint(hashes, min(100, int(sum(float(np.abs(step).sum()) for step in steps)) // 90))


def _small_luma(image: Pixels) -> npt.NDArray[np.float32]:
    """Blurs with two box filters, about a tent together, and samples evenly to 64 x 64."""
    height, width = (min(side, _MAX_SIDE) for side in image.shape[:2])
    image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    luma = np.asarray(cv2.transform(image.astype(np.float32), np.array([[0.299, 0.587, 0.114]])), np.float32)
    if (height, width) != (_LUMA, _LUMA):
        windows = [(side + 2 * _LUMA - 1) // (2 * _LUMA) for side in (width, height)]
        anchor = [window - 1 - window // 2 for window in windows]
        for _ in range(2):
            luma = np.asarray(cv2.blur(luma, windows, anchor=anchor), np.float32)
    rows, columns = (((np.arange(_LUMA) + 0.5) * side / _LUMA).astype(np.intp) for side in (height, width))
    return luma[np.ix_(rows, columns)]


def _bits(waves: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Returns the bits with the lowest frequency last, as PDQ writes them."""
    values = waves.ravel()
    return np.packbits((values > np.partition(values, 127)[127])[::-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each image. Returns 1 if one can't be put on a list."""
    parser = argparse.ArgumentParser(prog="python -m deployments.moderation.known_images")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("--category", required=True, choices=CATEGORIES)
    args = parser.parse_args(arguments)
    status = 0
    for path in args.images:
        try:
            image = fingerprint(np.asarray(open_image(path.read_bytes())))
            if not image.is_reliable:
                raise ValueError(f"too plain to be told from others ({image.quality} of {MIN_QUALITY})")
            print(f"{image.text} {args.category}  # {' '.join(path.name.split())}")
        except Exception as error:  # the other files still get their lines
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

MAX_SCORE: Final = 0.6
_SIDE: Final = 256
"""Longest side of the copy that is examined."""
_FRACTION_RANGE: Final = 0.12, 0.5
"""Shares of skin with score 0 and MAX_SCORE; a portrait has less than the first."""
_MIN_REGION: Final = 0.02
_FLAT, _ROUGH, _BENT = 0.005, 0.07, 0.024
"""Shares of the luma: texture below which a region is drawn, texture above which it is an edge or hair, and deviation
from an even gradient that a body has at least."""
_DARK: Final = 48.0
"""Luma below which these are shares of this value, as rounding would count."""


class SkinClassifier:
    def __init__(self, spec: ClassifierSpec) -> None:
        """Ignores the spec, as there are no weights."""

    def classify(self, images: Sequence[Pixels]) -> list[Scores]:
        low, high = _FRACTION_RANGE
        return [
            {"sexual content": MAX_SCORE * float(np.clip((_skin_fraction(each) - low) / (high - low), 0, 1))}
            for each in images
        ]


def _skin_fraction(image: Pixels) -> float:
    """Returns the share of skin, 0 to 1."""
    scale = min(1.0, _SIDE / max(image.shape[:2]))
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    luma, cr, cb = (np.asarray(plane) for plane in cv2.split(cv2.cvtColor(small, cv2.COLOR_RGB2YCrCb)))
    tones = (cb >= 77) & (cb <= 127) & (cr >= 133) & (cr <= 173) & (luma >= 24)
    if tones.mean() < _MIN_REGION:
        return 0.0
    luma = luma.astype(np.float32)
    level = np.maximum(cv2.blur(luma, (9, 9)), _DARK)
    detail = luma - cv2.GaussianBlur(luma, (0, 0), 1.5)
    texture = np.sqrt(np.maximum(cv2.blur(detail * detail, (9, 9)), 0)) / level
    mask = tones & (texture < _ROUGH)
    body_mask = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    components: Any = cv2.connectedComponentsWithStats(body_mask, connectivity=4, ltype=cv2.CV_32S)
    count, regions, _, _ = components
    areas = [np.mean(inside) for region in range(1, count) if _is_body(inside := regions == region, texture, level)]
    return float(sum(areas))


def _is_body(inside: npt.NDArray[np.bool_], texture: npt.NDArray[Any], level: npt.NDArray[Any]) -> bool:
    if inside.mean() < _MIN_REGION or np.median(texture[inside]) < _FLAT:
        return False
    coordinates = np.column_stack([*np.nonzero(inside), np.ones(np.count_nonzero(inside))])
    plane = coordinates @ np.linalg.lstsq(coordinates, level[inside])[0]
    return float(np.std(level[inside] - plane)) >= _BENT * float(level[inside].mean())
