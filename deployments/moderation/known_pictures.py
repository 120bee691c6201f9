"""Finds pictures again that must never pass, by perceptual hashes of them.

The hash is PDQ (Facebook, 2019; github.com/facebook/ThreatExchange, pdq/): the signs of 16 x 16 low frequencies of a
64 x 64 luma, against their median. It is written as PDQ writes it, so that lists of PDQ hashes can be used as they are:
against the reference (pdqhash 0.2.8) a few of the 256 bits differ, because large pictures are averaged down first.

A list is a text file with an entry per line, 64 hex digits and a category, and `#` comments. Lines for it:
`python -m deployments.moderation.known_pictures PICTURE... --category NAME`.

The hash survives compression, scaling, brightness, a crop of a few percent, and by trying all eight of them turns and
mirrorings. It does not survive large crops, wide frames, collages, other angles than right ones, or repainting.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import CATEGORIES, JudgeSpec, Scores
from deployments.pictures.pixels import Pixels, open_picture

Floats: TypeAlias = npt.NDArray[np.float32]

MATCH: Final = 31
"""Bits of 256 in which a picture and an entry may differ: PDQ's own threshold."""
LEAST_QUALITY: Final = 50
"""Of 100, PDQ's own advice: in a plainer picture noise decides too many of the bits."""

_BITS = 256
_LUMA = 64
_FREQUENCIES = 16
_LARGEST = 1024
"""Sides above it are averaged down to it first: the blur that follows takes as long as a picture is large."""
_SMALLEST = 5
"""PDQ does not hash smaller ones."""
_MISSING: Final = (
    (0.0, 0.0, 0.0, 0.0),
    (0.015, 0.015, 0.015, 0.015),
    *((top, 0.02 - top, left, 0.02 - left) for top in (0.0, 0.02) for left in (0.0, 0.02)),
)
"""Of height or width, what may have been cut off above, below, left and right. PDQ by itself loses a picture with 2 %
less at a corner; so it is also looked for as if its rim went on to there."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Hashes of a picture, of its turns and mirrorings, and of all that with a little more rim, (48, 32) bytes.

    The picture's own comes first: it alone is put on lists.
    """

    hashes: npt.NDArray[np.uint8]
    quality: int
    """0 to 100: how much detail there is."""

    @property
    def is_reliable(self) -> bool:
        return self.quality >= LEAST_QUALITY

    @property
    def text(self) -> str:
        return self.hashes[0].tobytes().hex()


class KnownPictures:
    """A picture on the list scores 1 in the entry's category. Without a checkpoint there is no list."""

    def __init__(self, spec: JudgeSpec) -> None:
        """Raises CheckpointError."""
        entries = [] if spec.checkpoint is None else read(Path(spec.checkpoint))
        packed = np.frombuffer(b"".join(digest for digest, _ in entries), np.uint64).reshape(-1, 4)
        # One row per quarter of the hash: what is compared lies side by side.
        self._quarters = np.ascontiguousarray(packed.T)
        self._categories = np.array([CATEGORIES.index(category) for _, category in entries], np.intp)

    def judge(self, pictures: Sequence[Pixels]) -> list[Scores]:
        if not self._categories.size:
            return [{} for _ in pictures]
        return [self._scores(fingerprint(picture)) for picture in pictures]

    def _scores(self, seen: Fingerprint) -> Scores:
        if not seen.is_reliable:
            return {}
        matches = {int(entry) for turned in seen.hashes.view(np.uint64) for entry in self._near(turned)}
        return {CATEGORIES[self._categories[entry]]: 1.0 for entry in matches}

    def _near(self, wanted: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        half = _differing(self._quarters[:2], wanted[:2])
        # Half of the bits already rules nearly every entry out: unrelated ones differ in about 64 of 128.
        candidates = np.flatnonzero(half <= MATCH)
        rest = _differing(self._quarters[2:, candidates], wanted[2:])
        return candidates[half[candidates] + rest <= MATCH]


def _differing(quarters: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Bits per entry; at most 128, for there are two quarters."""
    first, second = (np.bitwise_count(row ^ word) for row, word in zip(quarters, wanted, strict=True))
    return first + second


def read(path: Path) -> list[tuple[bytes, str]]:
    """Hashes and their categories. Raises CheckpointError with the number of a bad line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} can't be read as a list of known pictures: {error}") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split(maxsplit=1)
        if not words:
            continue
        try:
            entries.append(_entry(words))
        except ValueError as error:
            raise CheckpointError(f"{path}, line {number}: {error}") from error
    return entries


def _entry(words: list[str]) -> tuple[bytes, str]:
    digits = words[0]
    if len(digits) != _BITS // 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError(f"{digits[:80]!r} is not {_BITS // 4} hex digits")
    category = words[1].strip() if len(words) == 2 else ""
    if category not in CATEGORIES:
        raise ValueError(f"{category[:80]!r} is no category; they are {', '.join(CATEGORIES)}")
    return bytes.fromhex(digits), category


def fingerprint(picture: Pixels) -> Fingerprint:
    if min(picture.shape[:2]) < _SMALLEST:
        return Fingerprint(np.zeros((8, _BITS // 8), np.uint8), quality=0)
    luma = _blurred_luma(picture)
    hashes = [
        _packed(turned)
        for missing in _MISSING
        for turned in _turned(np.asarray(_TRANSFORM @ _sampled(luma, *missing) @ _TRANSFORM.T, np.float32))
    ]
    return Fingerprint(np.stack(hashes), _quality(_sampled(luma, *_MISSING[0])))


def _blurred_luma(picture: Pixels) -> Floats:
    """Blurred by two boxes, together about a tent, each half as wide as what becomes one value."""
    height, width = picture.shape[:2]
    if max(height, width) > _LARGEST:
        size = min(width, _LARGEST), min(height, _LARGEST)
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
        height, width = picture.shape[:2]
    luma = np.asarray(cv2.transform(picture.astype(np.float32), np.array([[0.299, 0.587, 0.114]])), np.float32)
    if (height, width) != (_LUMA, _LUMA):
        windows = [(side + 2 * _LUMA - 1) // (2 * _LUMA) for side in (width, height)]
        anchor = [window - 1 - window // 2 for window in windows]
        for _ in range(2):
            luma = np.asarray(cv2.blur(luma, windows, anchor=anchor), np.float32)
    return luma


def _sampled(luma: Floats, top: float, bottom: float, left: float, right: float) -> Floats:
    """(64, 64) of its values, evenly spaced, as if its rim went on for these shares of its sides."""

    def places(side: int, before: float, after: float) -> npt.NDArray[np.intp]:
        evenly = (np.arange(_LUMA) + 0.5) / _LUMA * (1 + before + after) - before
        return np.clip(np.floor(evenly * side), 0, side - 1).astype(np.intp)

    return luma[np.ix_(places(luma.shape[0], top, bottom), places(luma.shape[1], left, right))]


def _quality(luma: Floats) -> int:
    """PDQ's: the sum of steps between neighbours, each cut to whole percents so that noise does not add up."""
    steps = [np.trunc(np.diff(luma, axis=axis) * np.float32(100) / np.float32(255)) for axis in (0, 1)]
    return min(100, int(sum(float(np.abs(step).sum()) for step in steps)) // 90)


def _cosines() -> Floats:
    """(16, 64): the DCT's frequencies 1 to 16. The constant one is left out: brightness says nothing."""
    frequency, place = np.arange(1, _FREQUENCIES + 1)[:, None], np.arange(_LUMA)[None, :]
    return np.asarray(np.sqrt(2 / _LUMA) * np.cos(np.pi / 2 / _LUMA * frequency * (2 * place + 1)), np.float32)


_TRANSFORM = _cosines()


def _turned(waves: Floats) -> list[Floats]:
    """The frequencies of a picture and its turns and mirrorings: mirroring changes the sign of every odd one."""
    signs = np.where(np.arange(1, _FREQUENCIES + 1) % 2, -1, 1).astype(np.float32)
    mirrored = [waves, waves * signs, waves * signs[:, None], waves * signs * signs[:, None]]
    return [turned for each in mirrored for turned in (each, each.T)]


def _packed(waves: Floats) -> npt.NDArray[np.uint8]:
    """Bit by bit, whether a frequency exceeds the median; the lowest one is the last bit, as PDQ writes it."""
    values = waves.ravel()
    median = np.partition(values, _BITS // 2 - 1)[_BITS // 2 - 1]  # PDQ's takes the lower one of the two in the middle
    return np.packbits((values > median)[::-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each picture; 1 when one can't be put on a list."""
    parser = argparse.ArgumentParser(prog="python -m deployments.moderation.known_pictures")
    parser.add_argument("pictures", nargs="+", type=Path, metavar="PICTURE")
    parser.add_argument("--category", required=True, choices=CATEGORIES)
    asked = parser.parse_args(arguments)
    failed = False
    for path in asked.pictures:
        try:
            seen = fingerprint(np.asarray(open_picture(path.read_bytes())))
        except Exception as error:  # whatever is wrong with one file, the others get their lines
            print(f"{path}: {error}", file=sys.stderr)
            failed = True
            continue
        if seen.is_reliable:
            print(f"{seen.text} {asked.category}  # {' '.join(path.name.split())}")
        else:
            print(f"{path}: too plain to be told from others ({seen.quality} of {LEAST_QUALITY})", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
