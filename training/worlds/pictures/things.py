"""Recognises the things in a picture: silhouettes are fitted to what differs from the background."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
import torch

from training.worlds import shapes
from training.worlds.pictures.backdrop import Backdrop, Floats, lab, named
from training.worlds.pictures.scene import TOKEN, Grid

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
_DAMPING: Final = 1e-3 * np.eye(3)
_STILL: Final = 0.1
"""Pixels. A fit that moves less has arrived."""
_CRUMB: Final = 10
"""Pixels. Fewer say nothing about a colour."""
_BLUR: Final = 1.0
"""Standard deviation in pixels: soft edges and noise are not ragged."""
_HIDDEN: Final = 0.35
"""Distance in RGB between a thing and what is behind it at which soft edges hide it."""
_SAME: Final = 15.0
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
    rag: float
    """Share of what the thing changes about the background that drawing it from this description leaves unexplained."""
    rim: float
    """The same along its outline alone: high when the outline has a colour of its own, or strays."""
    cover: Floats
    """(H, W) in [0, 1]: the fitted silhouette."""


class _Fit(NamedTuple):
    overlap: float
    shape: str
    circle: npt.NDArray[np.float64]
    """x, y and half side, in pixels of the crop."""
    cover: Floats


def read_things(picture: Floats, backdrop: Backdrop, grid: Grid) -> tuple[Seen, ...]:
    """The things on a backdrop, largest first. `picture` is (16 x rows, 16 x columns, 3) in [0, 1]."""
    pieces = _pieces(picture, backdrop)
    things = [_read(picture, backdrop, piece, pieces, grid) for piece in pieces]
    if backdrop.at_edge.any():
        _join(picture, backdrop, pieces, things, grid)
    return tuple(things)


def _join(picture: Floats, backdrop: Backdrop, pieces: list[Mask], things: list[Seen], grid: Grid) -> None:
    """Makes one of neighbours of one colour that are better understood together: a pattern cut them apart."""
    for early, late in sorted(combinations(range(len(things)), 2), key=lambda pair: -pair[1]):
        if late >= len(things) or things[early].colour != things[late].colour:
            continue
        if not (grown(pieces[early], _MARGIN) & pieces[late]).any():
            continue
        both = pieces[early] | pieces[late]
        rest = [piece for index, piece in enumerate(pieces) if index not in (early, late)]
        joined = _read(picture, backdrop, both, rest, grid)
        if joined.rag < max(things[early].rag, things[late].rag):
            pieces[early], things[early] = both, joined
            del pieces[late], things[late]


def _pieces(picture: Floats, backdrop: Backdrop) -> list[Mask]:
    """(H, W) each: where one thing is, largest first."""
    distances = np.linalg.norm(picture - backdrop.pixels, axis=2)
    differs = distances > backdrop.tolerance
    # Opened first: noise, and what is left of the edges of patterns, is thinner than any thing.
    differs &= grown(shrunk(differs, 1), 3)
    layers = _by_colour(picture, backdrop, distances, differs) if backdrop.at_edge.any() else [differs]
    pieces = []
    for layer in layers:
        count, labels = cv2.connectedComponents(layer.astype(np.uint8), connectivity=4)
        certain = np.bincount(labels[~backdrop.at_edge], minlength=count)
        pieces += [labels == index for index in range(1, count) if certain[index] >= _SMALLEST * differs.size]
    return sorted(pieces, key=lambda piece: -np.count_nonzero(piece))


def _by_colour(picture: Floats, backdrop: Backdrop, distances: Floats, differs: Mask) -> list[Mask]:
    """(H, W) per colour of things: what has it, with the gaps that the edges of a pattern cut into it."""
    layers: list[tuple[Floats, Mask]] = []
    count, labels = cv2.connectedComponents(differs.astype(np.uint8), connectivity=4)
    for index in range(1, count):
        part = labels == index
        certain = part & ~backdrop.at_edge
        if np.count_nonzero(certain) < _CRUMB:
            continue
        colour = np.median(picture[certain], axis=0).astype(np.float32)
        away = np.linalg.norm(picture - colour, axis=2)
        # Halfway between the pattern's colours there may be the thing's: nothing is to be seen there.
        hidden = (away < _HIDDEN) & (np.linalg.norm(backdrop.pixels - colour, axis=2) < _HIDDEN)
        whole = part | (grown(part, 4) & backdrop.at_edge & ((away < distances) | hidden))
        for other, layer in layers:
            if np.linalg.norm(np.subtract(*lab(np.stack([colour, other])))) < _SAME:
                layer |= whole
                break
        else:
            layers.append((colour, whole))
    return [layer for _, layer in layers]


def _read(picture: Floats, backdrop: Backdrop, piece: Mask, pieces: Sequence[Mask], grid: Grid) -> Seen:
    crop = _around(piece)
    others = sum((other[crop] for other in pieces if other is not piece), np.zeros(piece[crop].shape, np.uint8))
    free = ~grown(others > 0, 2)
    pixels, behind = picture[crop], backdrop.pixels[crop]
    colour = _inner_colour(pixels, piece[crop])
    contrast = colour - behind
    # On a gradient a thing may have the colour of what is behind it in places; these say nothing about its outline.
    strength = np.einsum("hwc,hwc->hw", contrast, contrast) + 1e-6
    cover = np.clip(np.einsum("hwc,hwc->hw", pixels - behind, contrast) / strength, 0, 1)
    fit = _best_fit(cover, strength * free)
    x, y, radius = fit.circle
    whole = np.zeros(piece.shape, np.float32)
    whole[crop] = fit.cover
    left, top, width, height = map(float, cv2.boundingRect((whole > 0.5).astype(np.uint8)))
    rag, rim = _unexplained(pixels, behind, fit.cover, free)
    return Seen(
        shape=fit.shape,
        colour=named(colour),
        circle=(
            float((crop[1].start + x) / TOKEN - grid[1] / 2),
            float((crop[0].start + y) / TOKEN - grid[0] / 2),
            float(radius / TOKEN),
        ),
        box=(top, left, top + height, left + width),
        rag=rag,
        rim=rim,
        cover=whole,
    )


def _best_fit(cover: Floats, weight: Floats) -> _Fit:
    """The silhouette that overlaps most with `cover` (H, W)."""
    weight = weight / weight.max()
    # By what has most contrast; the rest of a thing may be invisible.
    area, *middle = _area_and_centroid(cover * (cover > 0.2) * (weight > 0.02))
    starts: list[_Fit] = []
    for name in shapes.NAMES:
        unit_area, *offset = _unit(name)
        radius = (max(area, 1.0) / unit_area) ** 0.5
        circle = np.array([*(np.array(middle) - np.array(offset) * radius), radius])
        drawn = _drawn(name, circle[None], cover.shape)[0]
        starts.append(_Fit(_overlap(drawn, cover, weight), name, circle, drawn))
    likely = sorted(starts, key=lambda fit: -fit.overlap)[:_REFINED]
    fits = [fit for start in likely for fit in _refined(start, cover, weight)]
    return max(fits, key=lambda fit: fit.overlap)


def _refined(start: _Fit, cover: Floats, weight: Floats) -> Iterator[_Fit]:
    """Better and better ones, by Gauss-Newton."""
    name, circle = start.shape, start.circle
    for _ in range(_ROUNDS):
        drawn = _drawn(name, circle + np.vstack([np.zeros(3), _NUDGE * np.eye(3)]), cover.shape)
        yield _Fit(_overlap(drawn[0], cover, weight), name, circle, drawn[0])
        slopes = ((drawn[1:] - drawn[0]) / _NUDGE).reshape(3, -1)
        weighed = slopes * weight.reshape(-1)
        step = np.linalg.solve(weighed @ slopes.T + _DAMPING, weighed @ (cover - drawn[0]).reshape(-1))
        if np.abs(step).max() < _STILL:
            break
        circle = circle + np.clip(step, -2, 2)
        circle[2] = max(circle[2], 2.0)


def _overlap(drawn: Floats, cover: Floats, weight: Floats) -> float:
    """Intersection over union, soft at the edges."""
    return float((weight * np.minimum(drawn, cover)).sum() / max((weight * np.maximum(drawn, cover)).sum(), 1e-9))


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
    outline = grown(cover > 0.5, 2) != shrunk(cover > 0.5, 2)
    along = float(((colour - behind) ** 2).sum(axis=2)[outline & free].sum())
    return float(error.sum()) / max(whole, 1e-9), float(error[outline].sum()) / max(along, 1e-9)


def _inner_colour(pixels: Floats, piece: Mask) -> Floats:
    """(3,): the median, away from soft edges."""
    inner = shrunk(piece, 1)
    return np.median(pixels[inner if np.count_nonzero(inner) > _CRUMB else piece], axis=0).astype(np.float32)


def _drawn(name: str, circles: npt.NDArray[np.float64], size: tuple[int, ...]) -> Floats:
    """(K, H, W) in [0, 1]: a shape at `circles` (K, 3)."""
    placed = torch.from_numpy(circles.astype(np.float32))
    return shapes.silhouette(name, placed, (size[0], size[1])).numpy()


@lru_cache(maxsize=len(shapes.NAMES))
def _unit(name: str) -> tuple[float, float, float]:
    """Area and centroid (x, y) of a shape of half side 1 around (0, 0)."""
    area, x, y = _area_and_centroid(_drawn(name, np.array([[128.0, 128, 100]]), (256, 256))[0])
    return area / 100**2, (x - 128) / 100, (y - 128) / 100


def _area_and_centroid(mass: Floats) -> tuple[float, float, float]:
    """Of (H, W); the centroid as (x, y)."""
    moments = cv2.moments(mass)
    area = max(moments["m00"], 1e-9)
    return moments["m00"], moments["m10"] / area + 0.5, moments["m01"] / area + 0.5


def _around(piece: Mask) -> tuple[slice, slice]:
    """Its rows and columns, and what is near."""
    left, top, width, height = cv2.boundingRect(piece.astype(np.uint8))
    return (
        slice(max(top - _MARGIN, 0), min(top + height + _MARGIN, piece.shape[0])),
        slice(max(left - _MARGIN, 0), min(left + width + _MARGIN, piece.shape[1])),
    )


def grown(mask: Mask, pixels: int) -> Mask:
    """(H, W), with all that is so near."""
    return cv2.dilate(mask.astype(np.uint8), np.ones((2 * pixels + 1,) * 2, np.uint8)) > 0


def shrunk(mask: Mask, pixels: int) -> Mask:
    """(H, W), without what is so near to its end."""
    return ~grown(~mask, pixels)
