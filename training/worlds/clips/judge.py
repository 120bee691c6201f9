"""Judges clips by what is to be seen and heard in them alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from training.build.sound import PITCHES
from training.worlds import vocabulary
from training.worlds.clips.scene import COLOURS, Scene

Frames: TypeAlias = NDArray[np.float32]
"""(N, H, W, 3) in [0, 1]."""
Wave: TypeAlias = NDArray[np.float32]
"""Samples in [-1, 1]."""

_RIM: Final = 4
"""Pixels along the sides where a thing never is, or only in part."""
STANDS_OUT: Final = 0.25
"""Distance in RGB from the background from which on a pixel belongs to a thing."""
_CORE: Final = 0.8
"""Of a thing's distances from the background; what is nearer is its soft outline."""
_SPECK: Final = 0.003
"""Part of the canvas below which there is no thing."""
_TRAVEL: Final = 0.15
"""Of the shorter side: what is less is no movement."""
_STEADY: Final = 0.1
"""Of the shorter side: what is more is no standstill."""
_GROWTH: Final = 1.5
"""How many times larger or smaller an area must become."""
_BEND: Final = 3
"""Pitches by which a tone must rise or fall, and which it must not when it stays."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame's thing: its middle in shorter sides, what part of the canvas it covers, and its colour in RGB."""

    x: float
    y: float
    area: float
    colour: NDArray[np.float32]


def judge(scene: Scene, frames: Frames, wave: Wave, rate: int) -> dict[str, bool]:
    """What is right of a clip of a whole journey, with its sound at `rate` samples a second."""
    behind = backdrop(frames)
    things = [_seen(frame, behind) for frame in (frames[len(frames) // 12], frames[len(frames) // 2], frames[-1])]
    visible = [thing for thing in things if thing is not None]
    shade = np.median([thing.colour for thing in visible], axis=0) if visible else None
    return {
        "background": _nearest(behind) == scene.background,
        "colour": shade is not None and _nearest(shade) == scene.colour,
        "motion": len(visible) == len(things) and _motion(visible[0], visible[-1]) == scene.motion,
        "pitch": _bend(wave, rate) == {"up": 1, "down": -1}.get(scene.motion, 0),
    }


def _nearest(colour: NDArray[np.float32]) -> str:
    """The name of the colour that is closest to one in RGB."""
    return min(COLOURS, key=lambda name: float(np.linalg.norm(np.asarray(vocabulary.COLOURS[name]) - colour)))


def _motion(first: Seen, last: Seen) -> str:
    """What happened in between; `unclear` if it is none of what there is."""
    across, down = last.x - first.x, last.y - first.y
    if max(abs(across), abs(down)) > _TRAVEL:
        if abs(across) > 2 * abs(down):
            return "right" if across > 0 else "left"
        return ("down" if down > 0 else "up") if abs(down) > 2 * abs(across) else "unclear"
    growth = last.area / first.area
    if growth > _GROWTH or growth < 1 / _GROWTH:
        return "grow" if growth > 1 else "shrink"
    return "still" if max(abs(across), abs(down)) < _STEADY else "unclear"


def _bend(wave: Wave, rate: int) -> int | None:
    """1 for a tone that rises, -1 for one that falls, 0 for one that stays; none for silence."""
    first, last = _pitch(wave[: rate // 2], rate), _pitch(wave[-(rate // 2) :], rate)
    if first is None or last is None:
        return None
    return 0 if abs(last - first) < _BEND else int(np.sign(last - first))


def _pitch(wave: Wave, rate: int) -> int | None:
    """The number of the pitch that is heard most, or none in silence."""
    if len(wave) == 0 or np.abs(wave).max() < 0.01:
        return None
    strengths = [abs(np.exp(-2j * np.pi * hertz * np.arange(len(wave)) / rate) @ wave) for hertz in PITCHES]
    return int(np.argmax(strengths))


def backdrop(frames: Frames) -> NDArray[np.float32]:
    """The colour along the sides of all frames, in RGB."""
    rim = np.ones(frames.shape[1:3], bool)
    rim[_RIM:-_RIM, _RIM:-_RIM] = False
    return np.median(frames[:, rim].reshape(-1, 3), axis=0)


def _seen(frame: NDArray[np.float32], behind: NDArray[np.float32]) -> Seen | None:
    apart = np.linalg.norm(frame - behind, axis=2)
    covered = apart > STANDS_OUT
    if covered.mean() < _SPECK:
        return None
    y, x = (axis.mean() / min(covered.shape) for axis in np.nonzero(covered))
    core = apart >= _CORE * np.quantile(apart[covered], 0.9)
    return Seen(float(x), float(y), float(covered.mean()), np.median(frame[core], axis=0))
