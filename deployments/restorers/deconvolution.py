"""Takes blur out of pictures that are out of focus or were scaled up, without weights.

Pictures are deconvolved under a sparse prior on gradients by half-quadratic splitting (Krishnan and Fergus, "Fast image
deconvolution using hyper-Laplacian priors", 2009; here total variation), all colours together, so that edges get no
coloured rims. Which kernel blurred a picture follows from the picture, in two steps:

* Blurring it once more by a known width weakens the gradient at an edge the more, the sharper the edge was (Zhuo and
  Sim, "Defocus map estimation from a single image", 2011). That says about how wide the kernel is.
* Of the Gaussians and discs about as wide, the right one leaves the sparsest gradients by L1 over L2 (Krishnan, Tay and
  Fergus, "Blind deconvolution using a normalized sparsity measure", 2011): too small a kernel leaves blur, too large a
  one or one of the wrong shape leaves ripples.

One kernel holds for the whole picture; motion blur, and a background alone out of focus, it can't undo.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deployments.contract.model import ModelSpec
from deployments.pictures.pixels import Pixels
from deployments.torch_process import set_up_torch

_TILE: Final = 1024
_MARGIN: Final = 32
"""Pictures are worked on in tiles, of which a margin is shared with the neighbours and then thrown away."""

_PROBE: Final = 0.6
_REBLUR: Final = 1.0
"""Sigmas, in pixels: of what calms noise before gradients are taken, and of the second blur."""
_SHARP: Final = 0.66
"""Edges of a sharp picture are found to be this wide at most: pixels have a width themselves."""
_PERCENTILE: Final = 30
"""Of the widths of all strong edges: most things have soft edges, too, but none is sharper than the kernel."""

_SAMPLE: Final = 320
"""Side of the part on which kernels are tried."""
_SIGMAS: Final = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 3.0, 3.5, 4.0)
_RADII: Final = (1.3, 1.6, 2.0, 2.4, 2.8, 3.0, 3.3, 3.7, 4.2, 5.0, 6.0)
_SIGMA_RANGE: Final = (0.65, 1.45)
_RADIUS_RANGE: Final = (1.4, 2.4)
"""Kernels that are tried, in widths found at edges."""
_OWN: Final = MappingProxyType({"gaussian": 0.9, "disc": 1.5})
"""Kernels smaller than these are found for sharp pictures, too."""
_MISFIT: Final = 0.015
"""How much of a misfit to the blurred picture outweighs what gradients got sparser, both as logarithms."""

_WEIGHT: Final = 1500.0
"""Of the data against the prior for noise of one level in 255; falls with the noise's variance."""
_COLOUR: Final = 0.1
"""Weight of what is colour and not brightness: JPEG and videos keep it at half the size."""
_PENALTIES: Final = (4.0, 16.0, 64.0, 256.0, 1024.0)
_AXES: Final = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / torch.tensor([[3], [2], [6]]).sqrt()
"""Rows are brightness and two colours; orthogonal, so that the transpose leads back."""


@dataclass(frozen=True, slots=True)
class Kernel:
    shape: Literal["gaussian", "disc"]
    size: float
    """Sigma or radius, in pixels."""

    def response(self, frequency: Tensor) -> Tensor:
        """To waves of so many radians per pixel."""
        if self.shape == "gaussian":
            return torch.exp(-0.5 * (self.size * frequency) ** 2)
        x = (self.size * frequency).clamp(min=1e-3)
        return 2 * torch.special.bessel_j1(x) / x


class Deconvolution:
    """Implements restorers.restorer.Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Of the spec threads alone matter: there are no weights."""
        set_up_torch(spec.threads)

    def restore(self, picture: Pixels, mask: Pixels | None) -> Pixels:
        """A picture that is sharp already comes back as it is."""
        width = edge_width(picture)
        if width <= _SHARP:
            return picture
        weight = _WEIGHT / max(1.0, noise(picture)) ** 2
        kernel = found_kernel(picture, width, weight)
        return picture if kernel.size < _OWN[kernel.shape] else deconvolved(picture, kernel, weight)


def edge_width(picture: Pixels) -> float:
    """Sigma, in pixels, of a Gaussian that would make the sharper ones of the strong edges; 0 where there are none."""
    grey = _grey(picture)
    once, twice = (_steepness(_blurred(grey, sigma)) for sigma in (_PROBE, math.hypot(_PROBE, _REBLUR)))
    ridges = once >= np.asarray(cv2.dilate(once, np.ones((3, 3), np.uint8)))
    strong = ridges & (once > max(4.0, float(np.percentile(once, 90))))
    if not strong.any():
        return 0.0
    ratio = once[strong] / np.maximum(twice[strong], 1e-3)
    widths = _REBLUR / np.sqrt(np.maximum(ratio**2 - 1, 1e-3))
    return math.sqrt(max(0.0, float(np.percentile(widths, _PERCENTILE)) ** 2 - _PROBE**2))


def noise(picture: Pixels) -> float:
    """Its standard deviation in levels of 255 (Immerkaer, 1996, with a median, which edges don't move)."""
    pattern = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)
    return float(np.median(np.abs(cv2.filter2D(_grey(picture), -1, pattern)))) / 0.6745 / 6


def found_kernel(picture: Pixels, width: float, weight: float) -> Kernel:
    """What blurred a picture with edges of about that width."""
    sample = torch.from_numpy(_liveliest(_grey(picture), _SAMPLE))[None] / 255

    def unlikely(kernel: Kernel) -> float:
        solver = _Solver(sample.shape[-2], sample.shape[-1], kernel, torch.tensor([weight]))
        sharp = solver(sample)
        misfit = _inner(solver.blurred(sharp) - sample).square().mean().sqrt().item()
        gradients = _lengths(*_gradients(_inner(sharp)))[..., :-1, :-1]
        sparsity = gradients.mean() / gradients.square().mean().sqrt()
        return math.log(sparsity.item()) + _MISFIT * math.log(misfit + 1e-4)

    return min(_candidates(width), key=unlikely)


def _candidates(width: float) -> list[Kernel]:
    def near(sizes: tuple[float, ...], limits: tuple[float, float]) -> list[float]:
        low, high = (min(limit * width, sizes[-1]) for limit in limits)
        return [size for size in sizes if low <= size <= high] or [sizes[0]]

    gaussians = [Kernel("gaussian", size) for size in near(_SIGMAS, _SIGMA_RANGE)]
    return gaussians + [Kernel("disc", size) for size in near(_RADII, _RADIUS_RANGE)]


def deconvolved(picture: Pixels, kernel: Kernel, weight: float) -> Pixels:
    """The picture without that kernel, tile by tile: memory stays small, and so do the Fourier transforms."""
    height, width = picture.shape[:2]
    rows, columns = (min(_TILE, _handy(side + 2 * _MARGIN)) for side in (height, width))
    solver = _Solver(rows, columns, kernel, torch.tensor([1, _COLOUR, _COLOUR]) * weight)
    down, across = rows - 2 * _MARGIN, columns - 2 * _MARGIN
    below, beside = -height % down, -width % across
    framed = cv2.copyMakeBorder(
        picture, _MARGIN, _MARGIN + below, _MARGIN, _MARGIN + beside, cv2.BORDER_REFLECT
    )  # reflected as often as it takes
    result = np.empty((height + below, width + beside, 3), np.uint8)
    for top, left in itertools.product(range(0, height, down), range(0, width, across)):
        tile = torch.from_numpy(np.ascontiguousarray(framed[top : top + rows, left : left + columns]))
        sharp = _inner(solver(torch.einsum("ac,hwc->ahw", _AXES, tile.float() / 255)))
        levels = torch.einsum("ac,ahw->hwc", _AXES, sharp * 255).round_().clamp_(0, 255)
        result[top : top + down, left : left + across] = levels.byte().numpy()
    return np.ascontiguousarray(result[:height, :width])


class _Solver:
    """Finds the x with the least weight / 2 |k * x - y|^2 + |grad x|, for tiles of one size, which wrap around."""

    def __init__(self, height: int, width: int, kernel: Kernel, weights: Tensor) -> None:
        """A weight for each channel."""
        y = torch.fft.fftfreq(height)[:, None] * math.tau
        x = torch.fft.rfftfreq(width)[None] * math.tau
        self._weights = weights[:, None, None]
        self._response = kernel.response(torch.hypot(y, x))
        self._roughness = 4 - 2 * torch.cos(y) - 2 * torch.cos(x)
        self._window = _window(height)[:, None] * _window(width)[None]

    def __call__(self, tile: Tensor) -> Tensor:
        """(C, H, W) in [0, 1] to the same; its margin is of no use."""
        middle = tile.mean((1, 2), keepdim=True)
        x = (tile - middle).mul_(self._window)  # no step where it wraps around
        data = torch.fft.rfft2(x) * (self._weights * self._response)
        power = self._weights * self._response**2
        for penalty in _PENALTIES:
            across, down = _gradients(x)
            lengths = _lengths(across, down)
            kept = (lengths - 1 / penalty).clamp_(min=0) / lengths.clamp_(min=1e-6)
            across *= kept
            down *= kept
            divergence = across.roll(1, -1).sub_(across).add_(down.roll(1, -2)).sub_(down)
            spectrum = torch.fft.rfft2(divergence).mul_(penalty).add_(data).div_(power + penalty * self._roughness)
            x = torch.fft.irfft2(spectrum, s=tile.shape[-2:])
        return x.add_(middle)

    def blurred(self, sharp: Tensor) -> Tensor:
        return torch.fft.irfft2(torch.fft.rfft2(sharp) * self._response, s=sharp.shape[-2:])


def _gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.roll(-1, -1).sub_(x), x.roll(-1, -2).sub_(x)


def _lengths(across: Tensor, down: Tensor) -> Tensor:
    """Of the gradients of all colours as one: (H, W)."""
    return (across.square().sum(0) + down.square().sum(0)).sqrt_()


def _inner(tile: Tensor) -> Tensor:
    return tile[..., _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]


def _window(length: int) -> Tensor:
    """1, falling to 0 at both ends, within half the margin."""
    rise = (1 - torch.cos((torch.arange(_MARGIN // 2) + 0.5) * math.pi / (_MARGIN // 2))) / 2
    return torch.cat((rise, torch.ones(length - 2 * len(rise)), rise.flip(0)))


def _handy(length: int) -> int:
    """The next length that transforms fast."""
    return math.ceil(length / 32) * 32


def _liveliest(grey: npt.NDArray[np.float32], side: int) -> npt.NDArray[np.float32]:
    """The square of that side, or less, with the most in it, and a reflected margin around."""
    rows, columns = min(side, grey.shape[0]), min(side, grey.shape[1])
    life = cv2.boxFilter(_steepness(_blurred(grey, _PROBE)), -1, (columns, rows), borderType=cv2.BORDER_CONSTANT)
    # Where a window of that size has its middle and lies inside.
    top, left = rows // 2, columns // 2
    inside = np.asarray(life)[top : top + grey.shape[0] - rows + 1, left : left + grey.shape[1] - columns + 1]
    row, column = np.unravel_index(int(inside.argmax()), inside.shape)
    part = grey[row : row + rows, column : column + columns]
    framed = cv2.copyMakeBorder(part, _MARGIN, _MARGIN, _MARGIN, _MARGIN, cv2.BORDER_REFLECT)
    return np.asarray(framed, np.float32)


def _grey(picture: Pixels) -> npt.NDArray[np.float32]:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.float32)


def _blurred(grey: npt.NDArray[np.float32], sigma: float) -> npt.NDArray[np.float32]:
    return np.asarray(cv2.GaussianBlur(grey, (0, 0), sigma), np.float32)


def _steepness(grey: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    across = cv2.Sobel(grey, cv2.CV_32F, 1, 0, scale=0.25)
    down = cv2.Sobel(grey, cv2.CV_32F, 0, 1, scale=0.25)
    return np.asarray(cv2.magnitude(across, down), np.float32)
