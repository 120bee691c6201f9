"""Edges of drawings as what they are: mixtures of the two colours beside them.

A model draws areas that are not quite even, and edges whose channels are not quite in the same place. Nobody sees that
in a small picture; enlarged with sharp edges, each channel turns where it is half way, and what lies between two such
turns is a fringe of a third colour. So before it is enlarged, areas are evened out (bilateral filter: Tomasi and
Manduchi, 1998), and every pixel of an edge is brought to the line between the colours of its two sides: all channels
of the edge then turn in the same place.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from deployments.pictures.pixels import Pixels

_REACH: Final = 2
"""Pixels to either side in which an edge has its two colours."""
_DIAMETER, _ALIKE, _NEAR = 15, 25.0, 8.0
"""What is evened out: colours that differ by less than about _ALIKE levels of 255, within about _NEAR pixels."""
_CONTRAST: Final = 40.0
"""Levels of 255 between two colours with an edge between them; from twice as many on it is certain."""
_SIDE: Final = 0.25
"""Share of the way from one colour to the other that counts as that colour."""
_THIRD: Final = 40.0
"""Distance from the line, in levels, up to which a pixel is mended; from twice as many on it is a colour by itself."""
_TURNS: Final = 4
"""Of the power iteration: two colours that differ have one direction, and one is found at once."""


def two_toned(pixels: Pixels) -> Pixels:
    """(H, W, 3) RGB to the same size, with even areas, and edges that are mixtures of two colours."""
    even = cv2.bilateralFilter(pixels, _DIAMETER, _ALIKE, _NEAR)
    window = np.ones((2 * _REACH + 1, 2 * _REACH + 1), np.uint8)
    contrast = cv2.subtract(cv2.dilate(even, window), cv2.erode(even, window)).max(axis=2)
    at = np.nonzero(contrast > _CONTRAST / 2)
    if not len(at[0]):
        return np.asarray(even, np.uint8)
    around = cv2.copyMakeBorder(even, _REACH, _REACH, _REACH, _REACH, cv2.BORDER_REPLICATE).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(around, window.shape, axis=(0, 1))[at]
    mended = np.array(even, np.uint8)
    mended[at] = _mixed(mended[at].astype(np.float32), windows.reshape(len(windows), 3, -1)) + 0.5
    return mended


def _mixed(colours: NDArray[np.float32], windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N, 3) colours, each with the K colours around it, (N, 3, K), on the line between the two that differ most."""
    along = np.einsum("nik,ni->nk", windows, _direction(windows))
    least, most = along.min(axis=1, keepdims=True), along.max(axis=1, keepdims=True)
    near = _SIDE * (most - least)
    one, other = _mean(windows, along <= least + near), _mean(windows, along >= most - near)
    line = other - one
    square = np.square(line).sum(axis=1, keepdims=True)
    share = ((colours - one) * line).sum(axis=1, keepdims=True) / np.maximum(square, 1)
    moves = one + share.clip(0, 1) * line - colours
    distance = np.sqrt(np.square(moves).sum(axis=1, keepdims=True))
    certain = (np.sqrt(square) / _CONTRAST - 1).clip(0, 1) * (2 - distance / _THIRD).clip(0, 1)
    return colours + certain * moves


def _direction(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N, 3): along which the colours (N, 3, K) differ most, of length 1; 0 where they don't."""
    centred = windows - windows.mean(axis=2, keepdims=True)
    covariance = np.einsum("nik,njk->nij", centred, centred)
    variances = np.einsum("nii->ni", covariance)
    covariance /= np.maximum(variances.sum(axis=1), 1e-6)[:, None, None]  # powers of it stay within a float's range
    direction = covariance[np.arange(len(covariance)), variances.argmax(axis=1)]
    for _ in range(_TURNS):
        direction = np.einsum("nij,nj->ni", covariance, direction)
    return direction / np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-6)


def _mean(windows: NDArray[np.float32], chosen: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(N, 3): of the chosen (N, K) among the colours (N, 3, K), at least one each."""
    return np.einsum("nik,nk->ni", windows, chosen.astype(np.float32)) / chosen.sum(axis=1, keepdims=True)
