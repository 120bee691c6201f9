"""How much `deployments.restorers.deconvolution` gives back of blurred pictures.

Sharp pictures of four kinds (scenes of the little world, dead leaves, clouds of a photograph's 1/f spectrum, text) are
blurred, get noise of one level in 255 and are written as JPEG of quality 95: what a client would upload. PSNR and SSIM
(Wang et al., 2004) say how far each is from its original before and after. Its plot shows before,
after and original.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.report import Report, Target
from deployments.contract.model import ModelSpec
from deployments.pictures.pixels import Pixels
from deployments.restorers.deconvolution import Deconvolution
from training.worlds.pictures.drawing import draw
from training.worlds.pictures.scene import random_scene

Floats = npt.NDArray[np.float32]

_SPEC: Final = ModelSpec(checkpoint="", objects_url="memory:///", backend="deconvolution", threads=1)
_EDGE: Final = 16
"""Pixels along the rim that do not count: what was blurred into them lay outside the picture."""
_WORDS: Final = ("quick", "brown", "fox", "jumps", "over", "lazy", "dog", "pack", "box", "five", "liquor", "jugs")


def scene(seed: int, side: int = 256) -> Pixels:
    drawn, _ = draw([random_scene(Random(seed), (8, 8), 1 + seed % 3, plain=0.3)], (8, 8), side // 8, samples=2)
    return np.asarray(((drawn[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy())


def clouds(seed: int, side: int = 256) -> Pixels:
    """Noise of a photograph's spectrum: amplitudes fall as 1/f, colours alike."""
    random = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    frequency[0, 0] = np.inf
    grey, *tints = (np.fft.ifft2(np.fft.fft2(random.normal(size=(side, side))) / frequency).real for _ in range(4))
    layers = np.dstack([grey / grey.std() + 0.35 * tint / tint.std() for tint in tints])
    return np.clip(layers * 45 + 125, 0, 255).round().astype(np.uint8)


def leaves(seed: int, side: int = 256) -> Pixels:
    """Dead leaves (Lee, Mumford and Huang, 2001): discs that hide each other, as many small as photographs have."""
    random = np.random.default_rng(seed)
    fine = 4 * side
    picture = np.full((fine, fine, 3), 90, np.uint8)
    for _ in range(1500):
        radius = 12 / math.sqrt(random.uniform(0.002, 1.0))  # radii fall as 1/r^3
        x, y = random.integers(0, fine, 2)
        colour = np.clip(random.uniform(20, 235) + random.normal(0, 30, 3), 0, 255).tolist()
        cv2.circle(picture, (int(x), int(y)), round(radius), colour, -1)
    texture = cv2.resize(clouds(seed + 1, side).astype(np.float32) - 125, (fine, fine), interpolation=cv2.INTER_LINEAR)
    textured = np.clip(picture + 0.25 * texture, 0, 255).astype(np.uint8)
    return np.asarray(cv2.resize(textured, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def text(seed: int, side: int = 256) -> Pixels:
    random = Random(seed)
    paper, ink = ((246, 242, 230), (30, 30, 40)) if seed % 2 else ((35, 45, 90), (240, 230, 140))
    page = np.full((2 * side, 2 * side, 3), paper, np.uint8)
    y = 0
    while y < 2 * side:
        scale = random.choice((0.9, 1.2, 1.6))
        y += round(34 * scale)
        words = " ".join(random.choices(_WORDS, k=8))
        cv2.putText(page, words, (10, y), cv2.FONT_HERSHEY_SIMPLEX, scale, ink, 2, cv2.LINE_AA)
    return np.asarray(cv2.resize(page, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


KINDS: Final[dict[str, Callable[[int, int], Pixels]]] = {
    "scene": scene,
    "leaves": leaves,
    "clouds": clouds,
    "text": text,
}


@dataclass(frozen=True, slots=True)
class Blur:
    kind: str
    size: float
    """Sigma of a Gaussian, radius of a disc, in pixels."""

    def __str__(self) -> str:
        return f"{self.kind} {self.size:g}"

    def of(self, pixels: Pixels) -> Floats:
        grey = pixels.astype(np.float32)
        if self.kind == "gaussian":
            return np.asarray(cv2.GaussianBlur(grey, (0, 0), self.size, borderType=cv2.BORDER_REFLECT), np.float32)
        reach, fine = math.ceil(self.size), 16
        step = (np.arange((2 * reach + 1) * fine) + 0.5) / fine - reach - 0.5
        inside = (np.hypot(step[:, None], step[None]) <= self.size).astype(np.float32)
        kernel: Any = cv2.resize(inside, (2 * reach + 1, 2 * reach + 1), interpolation=cv2.INTER_AREA)
        return np.asarray(cv2.filter2D(grey, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT), np.float32)


BLURS: Final = (*(Blur("gaussian", sigma) for sigma in (1, 1.5, 2, 3)), Blur("disc", 2), Blur("disc", 3))


def uploaded(blurred: Floats, seed: int = 0) -> Pixels:
    """With noise of one level, as JPEG of quality 95."""
    noisy = blurred + np.random.default_rng(seed).normal(0, 1, blurred.shape)
    levels = np.clip(noisy, 0, 255).round().astype(np.uint8)
    data = cv2.imencode(".jpeg", levels[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)[..., ::-1].copy()


def psnr(a: Pixels, b: Pixels) -> float:
    inner = slice(_EDGE, -_EDGE)
    error = float(np.mean((a[inner, inner].astype(np.float64) - b[inner, inner]) ** 2))
    return 10 * math.log10(255**2 / max(error, 1e-6))


def ssim(a: Pixels, b: Pixels) -> float:
    """Of the brightness, in a Gaussian window of sigma 1.5, as in the paper."""
    x, y = (np.asarray(cv2.cvtColor(one, cv2.COLOR_RGB2GRAY), np.float64) for one in (a, b))

    def around(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(cv2.GaussianBlur(values, (11, 11), 1.5), np.float64)

    mean_x, mean_y = around(x), around(y)
    var_x, var_y = around(x * x) - mean_x**2, around(y * y) - mean_y**2
    both = around(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    like = (2 * mean_x * mean_y + c1) * (2 * both + c2) / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
    return float(like[_EDGE:-_EDGE, _EDGE:-_EDGE].mean())


@dataclass(frozen=True, slots=True)
class Outcome:
    blur: str
    kind: str
    seed: int
    psnr: tuple[float, float]
    """Before and after."""
    ssim: tuple[float, float]


def outcomes(restorer: Deconvolution, seeds: int, blurs: tuple[Blur | None, ...] = BLURS) -> Iterator[Outcome]:
    """Of every blur and kind of picture; None is no blur."""
    for blur in blurs:
        for kind, make in KINDS.items():
            for seed in range(seeds):
                sharp = make(seed, 256)
                before = uploaded(sharp.astype(np.float32) if blur is None else blur.of(sharp), seed)
                after = restorer.restore(before, None)
                yield Outcome(
                    str(blur or "none"),
                    kind,
                    seed,
                    (psnr(before, sharp), psnr(after, sharp)),
                    (ssim(before, sharp), ssim(after, sharp)),
                )


@dataclass(frozen=True, slots=True)
class Plan:
    pictures: int = 6
    """Of each kind."""
    side: int = 2048
    """Of the one whose seconds are measured."""


def measure(plan: Plan, console: Console) -> Report:
    restorer = Deconvolution(_SPEC)
    found = list(outcomes(restorer, plan.pictures, (None, *BLURS)))
    figures = {blur: _figures([one for one in found if one.blur == blur]) for blur in ("none", *map(str, BLURS))}
    worst = min(one.psnr[1] - one.psnr[0] for one in found)
    seconds = _seconds(restorer, plan.side)
    console.print(_table(figures))
    blurred = [rows["all"] for blur, rows in figures.items() if blur != "none"]
    return Report(
        figures=figures,
        targets=[
            Target("PSNR, mean gain for the worst kind of blur", min(map(_gain, blurred)), 1.0, "dB", at_least=True),
            Target("PSNR, gain of the worst picture", worst, -0.5, "dB", at_least=True),
            Target(f"{plan.side} x {plan.side} pixels, CPU", seconds, 5.0, "s"),
        ],
        draw=lambda path: cv2.imwrite(str(path), before_and_after()[..., ::-1]),
    )


def _figures(found: list[Outcome]) -> dict[str, dict[str, float]]:
    """By kind of picture, and of all."""

    def means(some: list[Outcome]) -> dict[str, float]:
        return {
            "psnr_before": round(mean(one.psnr[0] for one in some), 2),
            "psnr_after": round(mean(one.psnr[1] for one in some), 2),
            "ssim_before": round(mean(one.ssim[0] for one in some), 4),
            "ssim_after": round(mean(one.ssim[1] for one in some), 4),
        }

    return {kind: means([one for one in found if one.kind == kind]) for kind in KINDS} | {"all": means(found)}


def _gain(row: dict[str, float]) -> float:
    return row["psnr_after"] - row["psnr_before"]


def _table(figures: dict[str, dict[str, dict[str, float]]]) -> Table:
    table = Table("blur", *KINDS, "all", title="PSNR in dB and SSIM, before → after", title_justify="left")
    for blur, rows in figures.items():
        cells = (
            f"{row['psnr_before']:.1f} → {row['psnr_after']:.1f}\n{row['ssim_before']:.3f} → {row['ssim_after']:.3f}"
            for row in rows.values()
        )
        table.add_row(blur, *cells)
    return table


def _seconds(restorer: Deconvolution, side: int) -> float:
    """On one thread: the processor's time, as others work beside it."""
    large = uploaded(Blur("gaussian", 1.5).of(leaves(0, side)))
    began = time.process_time()
    restorer.restore(large, None)
    return time.process_time() - began


def before_and_after() -> Pixels:
    """Columns: blurred, restored, original. Each of the rows is another kind of picture and of blur."""
    restorer = Deconvolution(_SPEC)
    rows = []
    for make, blur in ((leaves, Blur("gaussian", 1.5)), (text, Blur("disc", 2)), (scene, Blur("disc", 3))):
        sharp = make(3, 256)
        before = uploaded(blur.of(sharp))
        rows.append(np.hstack((before, restorer.restore(before, None), sharp)))
    return np.vstack(rows)


BENCHMARK = Benchmark(
    "deblur",
    "what deconvolution gives back of blurred pictures",
    Plan(),
    Plan(pictures=1, side=1024),
    measure,
)
