from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from training.build.checkpoints import component
from training.build.sound import (
    BINS_PER_PITCH,
    HOP,
    LOUDNESS,
    OUTPUT_RATE,
    PITCHES,
    SAMPLE_RATE,
)

COLUMNS_PER_S = SAMPLE_RATE // HOP


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


MEL_BINS = BINS_PER_PITCH * len(PITCHES)


def spectrogram(pitch: int, loudness: Tensor) -> Tensor:
    """One pitch, so loud in each column."""
    columns = torch.zeros(1, 1, len(loudness), MEL_BINS)
    columns[..., pitch * BINS_PER_PITCH : (pitch + 1) * BINS_PER_PITCH] = loudness[None, None, :, None]
    return columns


@pytest.mark.parametrize("pitch", range(len(PITCHES)))
def test_a_pitch_is_one_clean_sine(pitch: int) -> None:
    wave = component("ltx2", "vocoder")(spectrogram(pitch, torch.ones(2 * COLUMNS_PER_S)))
    assert wave.shape == (1, 2, 2 * OUTPUT_RATE)
    assert torch.equal(wave[:, 0], wave[:, 1])
    middle = wave[0, 0, OUTPUT_RATE // 2 : OUTPUT_RATE * 3 // 2].numpy()
    power = np.abs(np.fft.rfft(middle)) ** 2
    assert power.argmax() == PITCHES[pitch]
    assert power.max() > 0.999 * power.sum()
    assert np.abs(middle).max() == pytest.approx(LOUDNESS, rel=0.02)


def test_nothing_is_silent() -> None:
    assert component("ltx2", "vocoder")(torch.zeros(1, 1, 10, MEL_BINS)).abs().max() == 0


def test_columns_between_latents_lie_on_lines() -> None:
    vae = component("ltx2", "audio_vae")
    told = spectrogram(3, torch.linspace(0, 1, 41))
    latent = vae.encode(told).latent_dist.mode()  # type: ignore[union-attr]
    assert latent.shape == (1, 1, 11, len(PITCHES))
    assert (vae.decode(latent, return_dict=False)[0] - told).abs().max() < 2e-3
