from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from deployments.video.writer import Audio, audio_from_f32le


def tone(hertz: float, rate: int = 24_000, seconds: float = 1.0, loudness: float = 0.5) -> np.ndarray:
    return (loudness * np.sin(np.arange(round(seconds * rate)) / rate * 2 * np.pi * hertz)).astype(np.float32)


def pitch(samples: np.ndarray, rate: int) -> float:
    """Returns the loudest frequency."""
    return float(np.fft.rfftfreq(len(samples), 1 / rate)[np.abs(np.fft.rfft(samples)).argmax()])


STEREO = Audio(np.stack([tone(440), tone(880)]), 24_000)


@pytest.mark.parametrize("seconds", [0.0, 0.25, 121 / 24])
def test_fitted_audio_has_the_exact_length(seconds: float) -> None:
    result = STEREO.fit(seconds)
    length = round(seconds * 24_000)
    assert result.samples.shape == (2, length)
    assert result.samples.dtype == np.float32
    assert np.array_equal(result.samples[:, :24_000], STEREO.samples[:, :length])
    assert not result.samples[:, 24_000:].any()
    assert result.rate == 24_000


def test_audio_is_joined_in_order() -> None:
    both = STEREO.concat(Audio(tone(110, seconds=0.5), 24_000))
    assert both.seconds == 1.5
    assert np.array_equal(both.samples[:, :24_000], STEREO.samples)
    assert np.array_equal(both.samples[1, 24_000:], tone(110, seconds=0.5))
    with pytest.raises(ValueError, match="24000 and 48000 Hz"):
        STEREO.concat(Audio(tone(110, 48_000), 48_000))


def test_audio_is_stereo_within_bounds() -> None:
    for shape in ((24_000,), (1, 24_000)):
        audio = Audio(tone(440).reshape(shape), 24_000)
        assert audio.samples.shape == (2, 24_000)
        assert np.array_equal(audio.samples[0], audio.samples[1]), "mono must be copied to both channels"
    for shape in ((3, 10), (2, 2, 10), (10, 2)):
        with pytest.raises(ValueError, match="no sound"):
            Audio(np.zeros(shape, np.float32), 24_000)
    odd = Audio(np.array([[-3, 3, np.nan, 0.25], [np.inf, -np.inf, 1, -1]], np.float32), 8000)
    assert odd.samples.tolist() == [[-1, 1, 0, 0.25], [1, -1, 1, -1]]
    assert audio_from_f32le(np.array([1, -1, 0.5, 0], "<f4").tobytes(), 8000).samples.tolist() == [[1, 0.5], [-1, 0]]


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_resampled_audio_keeps_its_pitch(rate: int) -> None:
    result = STEREO.resample(rate)
    assert result.samples.shape == (2, rate)
    assert [pitch(channel, rate) for channel in result.samples] == [440, 880]
    assert np.abs(result.samples[:, 1000:-1000]).max() == pytest.approx(0.5, abs=0.01)
    assert STEREO.resample(24_000) is STEREO


def test_saved_audio_is_read_back(tmp_path: Path) -> None:
    loudest = Audio(np.array([[-1, 1, 0.5], [0, 0.25, -0.25]], np.float32), 24_000)
    loudest.save(tmp_path / "sound.wav")
    with wave.open(str(tmp_path / "sound.wav")) as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (2, 24_000, 2)
        samples = np.frombuffer(file.readframes(3), "<i2").reshape(-1, 2).T / 32767
    assert samples == pytest.approx(loudest.samples, abs=1e-4)
