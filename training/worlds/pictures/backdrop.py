"""Recognises the background of a picture, whatever lies on it.

Every background of the world is tried at sample points, and the ones that explain most of them are fitted to the
pixels they explain. Things may cover much of the canvas, but a background must show more of itself than they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, get_args

import cv2
import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray

from training.worlds import palette, vocabulary
from training.worlds.pictures.drawing import second_share
from training.worlds.pictures.scene import TOKEN, Background, BackgroundKind, Grid

Floats: TypeAlias = NDArray[np.float32]

_PATTERNS: Final = ("striped", "checkered", "dotted")

_PALETTE: Final[Floats] = np.array(list(vocabulary.COLOURS.values()), np.float32)
_FARTHEST: Final = 22.0
"""CIE76 difference beyond which a colour is none of the palette. Shades stay within 4; the closest two are 31 apart."""
_SAMPLES: Final = (2, 7)
"""Rows and columns of a token, in pixels: none is on the edge of a pattern, and a dot has its share of them."""
_NEAR: Final = 0.08
"""Distance in RGB at which a sample speaks for a background with 61 %."""
_EXPLAINED: Final = 0.12
"""Largest distance in RGB of a pixel that its background explains. No two colours are closer than 0.25."""
_EDGE: Final = 0.5
"""Of the step at a pattern's edge, what a pixel beside it may be off: decoders and files soften edges."""
_TRIED: Final = 3
"""Pairs of colours for every kind."""
_CLOSE: Final = 0.12
"""How much less than the best at the sample points a background may explain to be looked at again."""
_SOFTNESS: Final = (0.0, 0.7, 1.2)
"""Standard deviations in pixels by which the edges of patterns may be blurred."""


@dataclass(frozen=True, slots=True)
class Backdrop:
    """A background as it was found in a picture."""

    kind: BackgroundKind
    colours: tuple[str | None, ...]
    """Names; None for a colour that is none of the palette."""
    pixels: Floats
    """(H, W, 3) in [0, 1]: the background alone, as it is fitted."""
    tolerance: Floats
    """(H, W): how far in RGB a pixel may be from it and still belong to it."""
    at_edge: NDArray[np.bool_]
    """(H, W): where a pattern changes colour, so that a pixel says little about what it belongs to."""

    def shows(self, expected: Background) -> bool:
        return self.kind == expected.kind and self.colours == expected.colours


def named(colour: Floats) -> str | None:
    """The palette's name for an RGB colour (3,) in [0, 1]; None for one that is far from all of them."""
    differences = np.linalg.norm(lab(_PALETTE) - lab(colour[None]), axis=1)
    best = int(differences.argmin())
    return palette.NAMES[best] if differences[best] <= _FARTHEST else None


def lab(colours: Floats) -> Floats:
    """(N, 3) RGB in [0, 1] to CIELAB, where distances are as large as they look."""
    clipped = np.clip(colours, 0, 1).astype(np.float32)[None]
    return np.asarray(cv2.cvtColor(clipped, cv2.COLOR_RGB2LAB), np.float32)[0]


def read_backdrop(picture: Floats, grid: Grid) -> Backdrop:
    """`picture` is (16 x rows, 16 x columns, 3) in [0, 1]."""
    candidates = [
        (score, kind, pair) for kind in get_args(BackgroundKind) for score, pair in _tried(picture, grid, kind)
    ]
    enough = max(score for score, _, _ in candidates) - _CLOSE
    fits = [_fitted(picture, grid, kind, pair) for score, kind, pair in candidates if score >= enough]
    _, kind, colours, parts = max(fits, key=lambda fit: fit[0])
    step = np.zeros_like(parts)
    if kind in _PATTERNS:
        window = np.ones((3, 3), np.uint8)
        step = np.asarray(cv2.dilate(parts, window) - cv2.erode(parts, window), np.float32)
    return Backdrop(
        kind,
        tuple(named(colour) for colour in colours),
        _blend(parts, colours),
        (_EXPLAINED + _EDGE * step * np.linalg.norm(colours[-1] - colours[0])).astype(np.float32),
        step > 0.1,
    )


def _tried(picture: Floats, grid: Grid, kind: BackgroundKind) -> list[tuple[float, Floats]]:
    """The pairs of colours (2, 3), or single ones (1, 3), that suit a kind best, and what part of samples they explain.

    Things of other colours count for nothing: what is looked for are the most frequent colours, not the mean ones.
    """
    points = np.ix_(*((np.arange(side)[:, None] * TOKEN + _SAMPLES).ravel() for side in grid))
    samples, parts = picture[points].reshape(-1, 1, 1, 3), _parts(kind, grid)[points].reshape(-1, 1, 1, 1)
    pairs = _PALETTE[:, None] + parts * (_PALETTE - _PALETTE[:, None])  # (samples, first, second, 3)
    scores = np.exp(((samples - pairs) ** 2).sum(axis=3) / (-2 * _NEAR**2)).mean(axis=0)
    scores[np.eye(len(_PALETTE), dtype=bool) != (kind == "plain")] = 0
    best = [divmod(int(index), len(_PALETTE)) for index in np.argsort(scores, axis=None)[: -_TRIED - 1 : -1]]
    return [(float(scores[pair]), _PALETTE[list(dict.fromkeys(pair))]) for pair in best]


def _fitted(
    picture: Floats, grid: Grid, kind: BackgroundKind, pair: Floats
) -> tuple[float, BackgroundKind, Floats, Floats]:
    """Its score, its colours by least squares, and its parts. Every third pixel is the same part of every pattern."""
    seen = np.ascontiguousarray(picture[::3, ::3])
    fits = []
    for softness in _SOFTNESS if kind in _PATTERNS else _SOFTNESS[:1]:
        parts = _parts(kind, grid, softness)
        few, colours = parts[::3, ::3], pair
        for _ in range(2):
            explained = np.linalg.norm(seen - _blend(few, colours), axis=2) < _EXPLAINED
            second = few[explained]
            weights = np.stack([1 - second, second][: len(pair)], axis=1)  # of a plain one, all is of the first
            if np.linalg.det(weights.T @ weights) >= 1:
                colours = np.linalg.lstsq(weights, seen[explained])[0].astype(np.float32)
        # Closeness rather than a count: of two that explain all pixels, the closer one is right.
        off = np.linalg.norm(seen - _blend(few, colours), axis=2)
        score = float(np.clip(1 - off / _EXPLAINED, 0, 1).mean())
        if len(colours) == 2 and np.linalg.norm(colours[0] - colours[1]) < _EXPLAINED:
            score = 0.0  # a plain one, dressed up
        fits.append((score, kind, colours, parts))
    return max(fits, key=lambda fit: fit[0])


@lru_cache(maxsize=256)
def _parts(kind: BackgroundKind, grid: Grid, softness: float = 0.0) -> Floats:
    """(H, W) in [0, 1]: how much of the second colour there is."""
    part = F.avg_pool2d(second_share(kind, grid, 2 * TOKEN)[None, None], 2)[0, 0].numpy()
    return np.asarray(cv2.GaussianBlur(part, (0, 0), softness), np.float32) if softness else part


def _blend(parts: Floats, colours: Floats) -> Floats:
    """(H, W) to (H, W, 3)."""
    return colours[0] + parts[..., None] * (colours[-1] - colours[0])
