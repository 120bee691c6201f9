"""Recognises the background of a picture, whatever lies on it.

Every background of the little world is tried at sample points, and the ones that explain most of them are fitted to
the pixels they explain. Things may cover much of the canvas, but a background must show more of itself than they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, get_args

import cv2
import numpy as np
import numpy.typing as npt
import torch.nn.functional as F

from training.worlds import palette
from training.worlds.pictures.drawing import backdrops
from training.worlds.pictures.naming import PALETTE, Floats, named
from training.worlds.pictures.scene import Background, BackgroundKind, Grid

TOKEN: Final = 16
"""Pixels per side of a token, in all that is read here."""

_KINDS: Final[tuple[BackgroundKind, ...]] = get_args(BackgroundKind)
_OFFSETS: Final = (2, 6, 9, 13)
"""Sample points of a token, in pixels along each side: none is on the edge of a pattern."""
_NEAR: Final = 0.08
"""Distance in RGB at which a sample speaks for a colour with 61 %."""
_EXPLAINED: Final = 0.12
"""Largest distance in RGB of a pixel that its background explains. No two colours are closer than 0.25."""
_EDGE: Final = 0.5
"""Of the step at a pattern's edge, what a pixel beside it may be off: decoders and files soften edges."""
_TRIED: Final = 3
"""Sets of colours for every kind."""
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
    at_edge: npt.NDArray[np.bool_]
    """(H, W): where a pattern changes colour, so that a pixel says little about what it belongs to."""

    def shows(self, expected: Background) -> bool:
        return self.kind == expected.kind and self.colours == expected.colours


@dataclass(frozen=True, slots=True)
class _Candidate:
    kind: BackgroundKind
    colours: tuple[int, ...]
    """Indices into the palette."""
    score: float
    """Share of the sample points that it explains."""

    @property
    def patterned(self) -> bool:
        return self.kind not in ("plain", "vertical", "horizontal")


@dataclass(frozen=True, slots=True)
class _Fit:
    score: float
    softness: float
    colours: Floats
    """(1, 3) or (2, 3)."""
    candidate: _Candidate


def read_backdrop(picture: Floats, grid: Grid) -> Backdrop:
    """`picture` is (16 x rows, 16 x columns, 3) in [0, 1]."""
    candidates = _candidates(picture, grid)
    enough = max(candidate.score for candidate in candidates) - _CLOSE
    fits = [_fitted(picture, grid, candidate) for candidate in candidates if candidate.score >= enough]
    best = max(fits, key=lambda fit: fit.score)
    parts = share(best.candidate.kind, grid, best.softness)
    step = _ranges(parts) if best.candidate.patterned else np.zeros_like(parts)
    return Backdrop(
        best.candidate.kind,
        tuple(named(colour) for colour in best.colours),
        _blend(parts, best.colours),
        (_EXPLAINED + _EDGE * step * np.linalg.norm(best.colours[-1] - best.colours[0])).astype(np.float32),
        step > 0.1,
    )


@lru_cache(maxsize=256)
def share(kind: BackgroundKind, grid: Grid, softness: float = 0.0) -> Floats:
    """(H, W) in [0, 1]: how much of the second colour a background of two has."""
    drawn = F.avg_pool2d(backdrops([Background("black", kind, "white")], grid, 2 * TOKEN), 2)[0].numpy()
    black, white = (palette.COLOURS[name][0] * 2 - 1 for name in ("black", "white"))
    part = ((drawn[0] - black) / (white - black)).astype(np.float32)
    return np.asarray(cv2.GaussianBlur(part, (0, 0), softness), np.float32) if softness else part


def _candidates(picture: Floats, grid: Grid) -> list[_Candidate]:
    """All kinds of background, each with the colours that suit it best."""
    points = np.concatenate([np.arange(max(grid) * TOKEN).reshape(-1, TOKEN)[:, offset] for offset in _OFFSETS])
    points.sort()
    rows, columns = points[points < grid[0] * TOKEN], points[points < grid[1] * TOKEN]
    samples = picture[np.ix_(rows, columns)].reshape(-1, 3)
    speaks = np.exp(_square_distances(samples, PALETTE) / (-2 * _NEAR**2))  # (P, 15)
    found = []
    for kind in _KINDS:
        parts = share(kind, grid)[np.ix_(rows, columns)].reshape(-1)
        if kind in ("vertical", "horizontal"):
            scores = _gradient_scores(samples[::3], parts[::3])
        elif kind == "plain":
            scores = np.diag(speaks.mean(axis=0))
        else:
            second = parts > 0.5
            scores = (speaks[~second].sum(axis=0)[:, None] + speaks[second].sum(axis=0)) / len(samples)
            np.fill_diagonal(scores, 0)
        for index in np.argsort(scores, axis=None)[: -_TRIED - 1 : -1]:
            first, second = divmod(int(index), len(PALETTE))
            colours = (first,) if kind == "plain" else (first, second)
            found.append(_Candidate(kind, colours, float(scores[first, second])))
    return found


def _gradient_scores(samples: Floats, parts: Floats) -> Floats:
    """(15, 15): the share of the samples that a gradient from the first to the second colour explains."""
    s, dots, squares = parts[:, None, None], samples @ PALETTE.T, PALETTE @ PALETTE.T
    norms = np.diag(squares)
    distances = (
        (samples**2).sum(axis=1)[:, None, None]
        - 2 * ((1 - s) * dots[:, :, None] + s * dots[:, None, :])
        + (1 - s) ** 2 * norms[:, None]
        + s**2 * norms
        + 2 * s * (1 - s) * squares
    )
    scores = np.exp(distances / (-2 * _NEAR**2)).mean(axis=0)
    np.fill_diagonal(scores, 0)
    return scores


def _fitted(picture: Floats, grid: Grid, candidate: _Candidate) -> _Fit:
    """With its colours by least squares. Judged by every third pixel: that is the same part of every pattern."""
    seen = np.ascontiguousarray(picture[::3, ::3])
    fits = []
    for softness in _SOFTNESS if candidate.patterned else _SOFTNESS[:1]:
        parts = share(candidate.kind, grid, softness)[::3, ::3]
        colours = PALETTE[list(candidate.colours)]
        for _ in range(2):
            explained = _distances(seen, _blend(parts, colours)) < _EXPLAINED
            colours = _least_squares(seen[explained], parts[explained], colours)
        # Closeness rather than a count: of two that explain all pixels, the closer one is right.
        score = float(np.clip(1 - _distances(seen, _blend(parts, colours)) / _EXPLAINED, 0, 1).mean())
        if len(colours) == 2 and np.linalg.norm(colours[0] - colours[1]) < _EXPLAINED:
            score = 0.0  # a plain one, dressed up
        fits.append(_Fit(score, softness, colours, candidate))
    return max(fits, key=lambda fit: fit.score)


def _least_squares(pixels: Floats, parts: Floats, before: Floats) -> Floats:
    """(1, 3) or (2, 3): the colours that pixels (N, 3) blend, the second by its part (N,)."""
    if len(before) == 1:
        return pixels.mean(axis=0, keepdims=True) if len(pixels) else before
    blend = np.stack([1 - parts, parts], axis=1)
    squares = blend.T @ blend
    if np.linalg.det(squares) < 1:
        return before
    return np.linalg.solve(squares, blend.T @ pixels).astype(np.float32)


def _blend(parts: Floats, colours: Floats) -> Floats:
    return colours[0] + parts[..., None] * (colours[-1] - colours[0])


def _ranges(parts: Floats) -> Floats:
    """(H, W): how much the second colour's part varies around each pixel."""
    window = np.ones((3, 3), np.uint8)
    return np.asarray(cv2.dilate(parts, window) - cv2.erode(parts, window), np.float32)


def _distances(picture: Floats, model: Floats) -> Floats:
    difference = picture - model
    return np.sqrt(np.einsum("hwc,hwc->hw", difference, difference))


def _square_distances(samples: Floats, colours: Floats) -> Floats:
    """(N, 3) and (M, 3) to (N, M)."""
    return ((samples[:, None] - colours) ** 2).sum(axis=2)
