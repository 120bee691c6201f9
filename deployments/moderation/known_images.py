"""Classifiers of images without weights: perceptual hashes of known images, and the share of skin.

The hash is PDQ (Facebook, 2019; github.com/facebook/ThreatExchange, pdq/): whether each of 16 x 16 low frequencies of a
64 x 64 luma exceeds their median. Lists of PDQ hashes can be used as they are. The package pdqhash is not used: for
Linux it has to be compiled.

A list is a text file with an entry per line, 64 hex digits and a category, and `#` comments. Lines for it:
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
LEAST_QUALITY: Final = 50
"""Of 100, PDQ's own advice: in a plainer image noise decides too many of the bits."""
_DIGITS: Final = 64
_LUMA: Final = 64
_LARGEST: Final = 1024
"""Sides above it are averaged down to it first: the blur that follows takes as long as an image is large."""
_SIGNS: Final = np.where(np.arange(1, 17) % 2, -1, 1)
"""Mirroring changes the sign of every odd frequency."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Hashes of an image and of its turns and mirrorings, (8, 32) bytes; its own, which is put on lists, is first."""

    hashes: npt.NDArray[np.uint8]
    quality: int
    """0 to 100: how much detail there is."""

    @property
    def is_reliable(self) -> bool:
        return self.quality >= LEAST_QUALITY

    @property
    def text(self) -> str:
        return self.hashes[0].tobytes().hex()


class KnownImages:
    """An image on the list scores 1 in the entry's category. Without a checkpoint there is no list."""

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
    """Hashes and their categories. Raises CheckpointError with the number of a bad line."""
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
    # Without the constant frequency: brightness says nothing.
    waves = np.asarray(cv2.dct(luma), np.float32)[1:17, 1:17]
    mirrors = (waves, waves * _SIGNS, waves * _SIGNS[:, None], waves * _SIGNS * _SIGNS[:, None])
    hashes = np.stack([_bits(variant) for each in mirrors for variant in (each, each.T)])
    # PDQ's: the steps between neighbours, each cut to whole percents so that noise does not add up.
    steps = [np.trunc(np.diff(luma, axis=axis) * np.float32(100 / 255)) for axis in (0, 1)]
    return Fingerprint(hashes, min(100, int(sum(float(np.abs(step).sum()) for step in steps)) // 90))


def _small_luma(image: Pixels) -> npt.NDArray[np.float32]:
    """Blurred by two boxes, together about a tent, and sampled evenly."""
    height, width = (min(side, _LARGEST) for side in image.shape[:2])
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
    """The lowest frequency is the last bit, as PDQ writes it."""
    values = waves.ravel()
    return np.packbits((values > np.partition(values, 127)[127])[::-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each image; 1 when one can't be put on a list."""
    parser = argparse.ArgumentParser(prog="python -m deployments.moderation.known_images")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("--category", required=True, choices=CATEGORIES)
    args = parser.parse_args(arguments)
    status = 0
    for path in args.images:
        try:
            image = fingerprint(np.asarray(open_image(path.read_bytes())))
            if not image.is_reliable:
                raise ValueError(f"too plain to be told from others ({image.quality} of {LEAST_QUALITY})")
            print(f"{image.text} {args.category}  # {' '.join(path.name.split())}")
        except Exception as error:  # whatever is wrong with one file, the others get their lines
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

HIGHEST: Final = 0.6
_SIDE: Final = 256
"""Longest side of the copy that is looked at."""
_FRACTION_RANGE: Final = 0.12, 0.5
"""Of the image: a face in front of something has less than the first, and from the second on it makes no odds."""
_LEAST_REGION: Final = 0.02
_FLAT, _ROUGH, _BENT = 0.005, 0.07, 0.024
"""As shares of the luma: below which texture a region is drawn, above which it is an edge or hair, and how far the luma
of a body bends away from an even gradient."""
_DARK: Final = 48.0
"""Luma below which they are shares of this instead: rounding would count."""


class SkinClassifier:
    def __init__(self, spec: ClassifierSpec) -> None:
        """There is nothing to load."""

    def classify(self, images: Sequence[Pixels]) -> list[Scores]:
        least, most = _FRACTION_RANGE
        return [
            {"sexual content": HIGHEST * float(np.clip((_skin_fraction(each) - least) / (most - least), 0, 1))}
            for each in images
        ]


def _skin_fraction(image: Pixels) -> float:
    """How much of the image is skin, 0 to 1."""
    scale = min(1.0, _SIDE / max(image.shape[:2]))
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    luma, cr, cb = (np.asarray(plane) for plane in cv2.split(cv2.cvtColor(small, cv2.COLOR_RGB2YCrCb)))
    tones = (cb >= 77) & (cb <= 127) & (cr >= 133) & (cr <= 173) & (luma >= 24)
    if tones.mean() < _LEAST_REGION:
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
    if inside.mean() < _LEAST_REGION or np.median(texture[inside]) < _FLAT:
        return False
    places = np.column_stack([*np.nonzero(inside), np.ones(np.count_nonzero(inside))])
    plane = places @ np.linalg.lstsq(places, level[inside])[0]
    return float(np.std(level[inside] - plane)) >= _BENT * float(level[inside].mean())
