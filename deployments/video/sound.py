"""Sound in memory: two channels beside a video's frames."""

from __future__ import annotations

import subprocess
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deployments.video.ffmpeg import VideoError, command

Samples: TypeAlias = NDArray[np.float32]

CHANNELS: Final = 2
_LOUDEST: Final = 32767


@dataclass(frozen=True, eq=False)
class Sound:
    """`samples` is (2, n), left and right in -1 to 1; `rate` is samples a second and channel."""

    samples: Samples
    rate: int

    def __post_init__(self) -> None:
        """Takes one channel for both: (n,) or (1, n). What is louder than possible is cut, what is no number silent."""
        samples = np.atleast_2d(np.asarray(self.samples, np.float32))
        if samples.ndim != 2 or samples.shape[0] not in (1, CHANNELS) or self.rate < 1:
            raise ValueError(f"no sound of one or two channels: {self.samples.shape} at {self.rate} Hz")
        samples = np.broadcast_to(samples, (CHANNELS, samples.shape[1]))
        object.__setattr__(self, "samples", np.nan_to_num(samples.clip(-1, 1)))

    @property
    def seconds(self) -> float:
        return self.samples.shape[1] / self.rate

    @classmethod
    def silence(cls, seconds: float, rate: int) -> Sound:
        return cls(np.zeros(round(seconds * rate), np.float32), rate)

    def fitted(self, seconds: float) -> Sound:
        """Cut or followed by silence, so that it has exactly `round(seconds * rate)` samples."""
        length = round(seconds * self.rate)
        kept = self.samples[:, :length]
        return Sound(np.pad(kept, ((0, 0), (0, length - kept.shape[1]))), self.rate)

    def joined(self, other: Sound) -> Sound:
        """This, then `other`, which has the same rate."""
        if other.rate != self.rate:
            raise ValueError(f"sounds of {self.rate} and {other.rate} Hz can't be joined")
        return Sound(np.concatenate((self.samples, other.samples), axis=1), self.rate)

    def resampled(self, rate: int) -> Sound:
        """As long as before, within a sample. Raises VideoError."""
        if rate == self.rate:
            return self
        raw = ("-f", "f32le", "-ac", str(CHANNELS), "-ar")
        done = subprocess.run(
            command(*raw, str(self.rate), "-i", "pipe:0", *raw, str(rate), "pipe:1"),
            input=np.ascontiguousarray(self.samples.T).tobytes(),
            capture_output=True,
        )
        if done.returncode:
            raise VideoError(f"the sound can't be resampled to {rate} Hz")
        return interleaved(done.stdout, rate).fitted(self.seconds)

    def save(self, file: Path) -> None:
        """As a WAV file of 16 bits."""
        with wave.open(str(file), "wb") as output:
            output.setnchannels(CHANNELS)
            output.setsampwidth(2)
            output.setframerate(self.rate)
            output.writeframes((self.samples.T * _LOUDEST).round().astype("<i2").tobytes())


def interleaved(data: bytes, rate: int) -> Sound:
    """The sound in 32-bit floats, left and right in turn, as ffmpeg calls `f32le`."""
    return Sound(np.frombuffer(data, "<f4").reshape(-1, CHANNELS).T, rate)
