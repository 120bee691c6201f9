"""Recognises the things in a picture: silhouettes are fitted to what differs from the background."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
import torch

from training.worlds.pictures.backdrop import TOKEN, Backdrop
from training.worlds.pictures.naming import Floats, lab, named
from training.worlds.pictures.scene import Grid
from training.worlds.shapes import NAMES, SHAPES

Mask: TypeAlias = npt.NDArray[np.bool_]

_SMALLEST: Final = 0.003
"""Of the canvas: what is smaller counts for nothing. The smallest thing, a small star or moon, has more than twice."""
_MARGIN: Final = 5
"""Pixels around a thing's pixels that its silhouette is fitted to."""
_REFINED: Final = 3
"""Shapes whose fit is worth refining, of those that fit best by area and centroid."""
_ROUNDS: Final = 5
_NUDGE: Final = 0.5
"""Pixels that a silhouette is moved by to see what a move changes."""
_NUDGES: Final = np.vstack([np.zeros(3), _NUDGE * np.eye(3)])
_DAMPING: Final = 1e-3 * np.eye(3)
_STILL: Final = 0.1
"""Pixels. A fit that moves less has arrived."""
_CRUMB: Final = 10
"""Pixels. Fewer say nothing about a colour."""
_BLUR: Final = 1.0
"""Standard deviation in pixels: soft edges and noise are not ragged."""
_HIDDEN: Final = 0.35
"""Distance in RGB between a thing and what is behind it at which soft edges hide it."""
_SAME_COLOUR: Final = 15.0
"""CIE76 difference up to which two pieces may be of one thing."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A thing as it was found."""

    shape: str
    colour: str | None
    """None for one that is none of the palette."""
    circle: tuple[float, float, float]
    """x, y and half side as `Thing.circle` gives them."""
    box: tuple[float, float, float, float]
    """Top, left, bottom, right of the fitted silhouette, in pixels."""
    overlap: float
    """Of the fitted silhouette with what is there: intersection over union, soft at the edges."""
    rag: float
    """Share of what the thing changes about the background that drawing it from this description leaves unexplained."""
    rim: float
    """The same along its outline alone: high when the outline has a colour of its own, or strays."""
    cover: Floats
    """(H, W) in [0, 1]: the fitted silhouette."""


@dataclass(frozen=True, slots=True)
class _Fit:
    shape: str
    circle: npt.NDArray[np.float64]
    """x, y and half side, in pixels of the crop."""
    cover: Floats
    overlap: float


def read_things(picture: Floats, backdrop: Backdrop, grid: Grid) -> tuple[Seen, ...]:
    """The things on a backdrop, largest first. `picture` is (16 x rows, 16 x columns, 3) in [0, 1]."""
    pieces = _pieces(picture, backdrop)
    things = [_read(picture, backdrop, piece, pieces, grid) for piece in pieces]
    if backdrop.at_edge.any():
        _join(picture, backdrop, pieces, things, grid)
    return tuple(things)


def silhouettes(shape: str, circles: npt.ArrayLike, size: tuple[int, ...]) -> Floats:
    """(K, H, W) in [0, 1]: a shape at (x, y, half side) of `circles` (K, 3), in pixels."""
    x, y, radius = torch.from_numpy(np.asarray(circles, np.float32).T[..., None, None].copy())
    columns, rows = torch.arange(size[1]) + 0.5, torch.arange(size[0]) + 0.5
    return (0.5 - SHAPES[shape](columns - x, rows[:, None] - y, radius)).clamp(0, 1).numpy()


def _pieces(picture: Floats, backdrop: Backdrop) -> list[Mask]:
    """(H, W) each: where one thing is, largest first."""
    distances = np.linalg.norm(picture - backdrop.pixels, axis=2)
    differs = (distances > backdrop.tolerance).astype(np.uint8)
    # Opened first: noise, and what is left of the edges of patterns, is thinner than any thing.
    cores = cv2.morphologyEx(differs, cv2.MORPH_OPEN, _square(3))
    differs &= cv2.dilate(cores, _square(5))
    groups = _bridged(picture, backdrop, distances, differs) if backdrop.at_edge.any() else [differs]
    pieces = []
    for group in groups:
        count, labels = cv2.connectedComponents(group, connectivity=4)
        certain = np.bincount(labels[~backdrop.at_edge], minlength=count)
        pieces += [labels == index for index in range(1, count) if certain[index] >= _SMALLEST * differs.size]
    return sorted(pieces, key=lambda piece: -np.count_nonzero(piece))


def _join(picture: Floats, backdrop: Backdrop, pieces: list[Mask], things: list[Seen], grid: Grid) -> None:
    """Makes one of neighbours of one colour that are better understood together: a pattern cut them apart."""
    for other, one in [(late, early) for late in range(len(things) - 1, 0, -1) for early in range(late)]:
        if other >= len(things) or things[one].colour != things[other].colour:
            continue
        reach = cv2.dilate(pieces[one].astype(np.uint8), _square(2 * _MARGIN + 1)).astype(bool)
        if not (reach & pieces[other]).any():
            continue
        both = pieces[one] | pieces[other]
        rest = [piece for index, piece in enumerate(pieces) if index not in (one, other)]
        joined = _read(picture, backdrop, both, rest, grid)
        if joined.rag < max(things[one].rag, things[other].rag):
            pieces[one], things[one] = both, joined
            del pieces[other], things[other]


def _bridged(
    picture: Floats, backdrop: Backdrop, distances: Floats, differs: npt.NDArray[np.uint8]
) -> list[npt.NDArray[np.uint8]]:
    """(H, W) per colour: what differs, with the gaps that the edges of a pattern cut into it."""
    count, labels = cv2.connectedComponents(differs, connectivity=4)
    groups: list[tuple[Floats, npt.NDArray[np.uint8]]] = []
    for index in range(1, count):
        part = labels == index
        certain = part & ~backdrop.at_edge
        if np.count_nonzero(certain) < _CRUMB:
            continue
        colour = np.median(picture[certain], axis=0).astype(np.float32)
        away = np.linalg.norm(picture - colour, axis=2)
        # Halfway between the pattern's colours there may be the thing's: nothing is to be seen there.
        bridge = (away < distances) | ((away < _HIDDEN) & (np.linalg.norm(backdrop.pixels - colour, axis=2) < _HIDDEN))
        reach = cv2.dilate(part.astype(np.uint8), _square(9)).astype(bool)
        grown = (part | (reach & backdrop.at_edge & bridge)).astype(np.uint8)
        alike = (g for g, (other, _) in enumerate(groups) if _difference(colour, other) < _SAME_COLOUR)
        if (group := next(alike, None)) is None:
            groups.append((colour, grown))
        else:
            groups[group] = groups[group][0], groups[group][1] | grown
    return [mask for _, mask in groups]


def _read(picture: Floats, backdrop: Backdrop, piece: Mask, pieces: list[Mask], grid: Grid) -> Seen:
    rows, columns = (_around(np.asarray(piece.any(axis=axis))) for axis in (1, 0))
    crop = rows, columns
    others = np.zeros(piece[crop].shape, np.uint8)
    for other in pieces:
        if other is not piece:
            others |= other[crop]
    free = cv2.dilate(others, _square(5)) == 0
    pixels, behind = picture[crop], backdrop.pixels[crop]
    colour = _inner_colour(pixels, piece[crop])
    contrast = colour - behind
    # On a gradient a thing may have the colour of what is behind it in places; these say nothing about its outline.
    strength = np.einsum("hwc,hwc->hw", contrast, contrast) + 1e-6
    cover = np.einsum("hwc,hwc->hw", pixels - behind, contrast) / strength
    fit = _best_fit(np.clip(cover, 0, 1), strength * free)
    x, y, radius = fit.circle
    left, top = columns.start + x, rows.start + y
    unit = min(grid) * TOKEN / 2
    whole = np.zeros(piece.shape, np.float32)
    whole[crop] = fit.cover
    inside = np.argwhere(whole > 0.5)
    box = (*inside.min(axis=0), *(inside.max(axis=0) + 1)) if len(inside) else (0, 0, 0, 0)
    rag, rim = _unexplained(pixels, behind, fit.cover, free)
    return Seen(
        shape=fit.shape,
        colour=named(colour),
        circle=(
            float((left - piece.shape[1] / 2) / unit),
            float((top - piece.shape[0] / 2) / unit),
            float(radius / unit),
        ),
        box=(float(box[0]), float(box[1]), float(box[2]), float(box[3])),
        overlap=fit.overlap,
        rag=rag,
        rim=rim,
        cover=whole,
    )


def _best_fit(cover: Floats, weight: Floats) -> _Fit:
    """The silhouette that overlaps most with `cover` (H, W), its place and size fitted by Gauss-Newton."""
    weight = weight / weight.max()
    # By what has most contrast; the rest of a thing may be invisible.
    mass = cover * (cover > 0.2) * (weight > 0.02)
    area = max(float(mass.sum()), 1.0)
    middle_y, middle_x = (
        float((mass.sum(axis=1 - axis) * (np.arange(mass.shape[axis]) + 0.5)).sum()) / area for axis in (0, 1)
    )
    starts = []
    for name in NAMES:
        unit_area, unit_x, unit_y = _unit(name)
        radius = (area / unit_area) ** 0.5
        circle = np.array([middle_x - unit_x * radius, middle_y - unit_y * radius, radius])
        drawn = silhouettes(name, circle[None], cover.shape)[0]
        starts.append(_Fit(name, circle, drawn, _overlap(drawn, cover, weight)))
    starts.sort(key=lambda fit: -fit.overlap)
    return max((_refined(start, cover, weight) for start in starts[:_REFINED]), key=lambda fit: fit.overlap)


def _refined(fit: _Fit, cover: Floats, weight: Floats) -> _Fit:
    best, circle = fit, fit.circle
    for _ in range(_ROUNDS):
        drawn = silhouettes(fit.shape, circle + _NUDGES, cover.shape)
        best = max(best, _Fit(fit.shape, circle, drawn[0], _overlap(drawn[0], cover, weight)), key=lambda f: f.overlap)
        slopes = ((drawn[1:] - drawn[0]) / _NUDGE).reshape(3, -1)
        weighed = slopes * weight.reshape(-1)
        step = np.linalg.solve(weighed @ slopes.T + _DAMPING, weighed @ (cover - drawn[0]).reshape(-1))
        if np.abs(step).max() < _STILL:
            break
        circle = circle + np.clip(step, -2, 2)
        circle[2] = max(circle[2], 2.0)
    return best


def _overlap(drawn: Floats, cover: Floats, weight: Floats) -> float:
    union = float((weight * np.maximum(drawn, cover)).sum())
    return float((weight * np.minimum(drawn, cover)).sum()) / max(union, 1e-9)


def _unexplained(pixels: Floats, behind: Floats, cover: Floats, free: Mask) -> tuple[float, float]:
    """What drawing `cover` in one colour leaves unexplained: as a share of all that the thing changes, and of what it
    would change along its outline. Compared a little out of focus, as noise and soft edges are no fault.
    """
    drawn, added = cv2.GaussianBlur(cover, (0, 0), _BLUR)[..., None], cv2.GaussianBlur(pixels - behind, (0, 0), _BLUR)
    away = cv2.GaussianBlur(cover[..., None] * behind, (0, 0), _BLUR)
    # added = drawn x colour - away, with the colour by least squares.
    weight = free[..., None] * drawn
    colour = (weight * (added + away)).sum(axis=(0, 1)) / max(float((weight * drawn).sum()), 1e-9)
    error = free * ((added - (drawn * colour - away)) ** 2).sum(axis=2)
    whole = float((free[..., None] * added**2).sum())
    shape = (cover > 0.5).astype(np.uint8)
    outline = cv2.dilate(shape, _square(5)) != cv2.erode(shape, _square(5))
    along = float(((colour - behind) ** 2).sum(axis=2)[outline & free].sum())
    return float(error.sum()) / max(whole, 1e-9), float(error[outline].sum()) / max(along, 1e-9)


def _inner_colour(pixels: Floats, piece: Mask) -> Floats:
    """(3,): the median, away from soft edges."""
    inner = cv2.erode(piece.astype(np.uint8), _square(3)) > 0
    return np.median(pixels[inner if np.count_nonzero(inner) > _CRUMB else piece], axis=0).astype(np.float32)


@lru_cache(maxsize=len(NAMES))
def _unit(shape: str) -> tuple[float, float, float]:
    """Area and centroid (x, y) of a shape of half side 1 around (0, 0)."""
    drawn = silhouettes(shape, [[128, 128, 100]], (256, 256))[0]
    area = float(drawn.sum())
    x, y = (float((drawn.sum(axis=axis) * (np.arange(256) - 127.5)).sum()) / area for axis in (0, 1))
    return area / 100**2, x / 100, y / 100


def _around(occupied: Mask) -> slice:
    found = np.flatnonzero(occupied)
    return slice(max(int(found[0]) - _MARGIN, 0), min(int(found[-1]) + 1 + _MARGIN, len(occupied)))


def _difference(one: Floats, other: Floats) -> float:
    first, second = lab(np.stack([one, other]))
    return float(np.linalg.norm(first - second))


@lru_cache(maxsize=8)
def _square(side: int) -> npt.NDArray[np.uint8]:
    return np.ones((side, side), np.uint8)
