from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_ltx2_audio import AutoencoderKLLTX2Audio
from diffusers.models.transformers.transformer_ltx2 import LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder
from torch import Tensor

from deployments.contract.job import FPS
from deployments.contract.model import BUNDLED
from deployments.families.canvas import ClipShape, Scale, shape_of
from deployments.families.ltx2_latents import ClipSound
from deployments.video.writer import Sound

CPU = torch.device("cpu")
RATE, BINS = 16_000, 64
SECONDS = 25 / FPS


class Spectrograms:
    """In place of an autoencoder: latents are the columns of the spectrogram themselves."""

    temporal_compression_ratio = 1
    mel_compression_ratio = 1
    dtype = torch.float32

    def __init__(self, ears: int) -> None:
        self.config = SimpleNamespace(sample_rate=RATE, mel_hop_length=160, mel_bins=BINS, in_channels=ears)
        self.latents_mean = torch.full((ears * BINS,), -5.0)
        self.latents_std = torch.full((ears * BINS,), 5.0)

    def encode(self, spectrogram: Tensor) -> Any:
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: spectrogram))


def a_rope(channels: int) -> Any:
    """A transformer, as far as sound needs one."""
    rope = SimpleNamespace(prepare_audio_coords=lambda rows, length, device: torch.zeros(rows, 1, length, 2))
    return SimpleNamespace(audio_rope=rope, config=SimpleNamespace(audio_in_channels=channels))


def spectrogram(lead: Sound, ears: int = 1) -> Tensor:
    """(ears, T, BINS), logarithms."""
    sound = ClipSound(Spectrograms(ears), None, a_rope(ears * BINS), CPU)
    shape = a_shape(sound, lead=25, frames=8)
    stream = sound.stream(shape, lead)
    return sound.latents(stream.given[:, : shape.sound_lead])[0]


def bundled() -> ClipSound:
    folder = str(BUNDLED / "ltx2")
    vae = AutoencoderKLLTX2Audio.from_pretrained(folder, subfolder="audio_vae", torch_dtype=torch.float32)
    vocoder = LTX2Vocoder.from_pretrained(folder, subfolder="vocoder", torch_dtype=torch.float32)
    transformer = LTX2VideoTransformer3DModel.from_pretrained(
        folder, subfolder="transformer", torch_dtype=torch.float32
    )
    return ClipSound(vae, vocoder, transformer, CPU)


def two_eared() -> ClipSound:
    """As large models have it, but tiny, and with weights of no meaning."""
    torch.manual_seed(0)
    vae = AutoencoderKLLTX2Audio(
        base_channels=32,
        output_channels=2,
        ch_mult=(1, 2, 4),
        num_res_blocks=1,
        in_channels=2,
        latent_channels=2,
        mel_bins=BINS,
        sample_rate=RATE,
        mel_hop_length=160,
        norm_type="pixel",
        causality_axis="height",
    )
    vocoder = LTX2Vocoder(in_channels=2 * BINS, hidden_channels=64)
    return ClipSound(vae, vocoder, a_rope(2 * BINS // 4), CPU)


@pytest.fixture(scope="module", params=[bundled, two_eared])
def sound(request: pytest.FixtureRequest) -> ClipSound:
    return request.param()


def a_shape(sound: ClipSound, lead: int, frames: int) -> ClipShape:
    return shape_of(64, 64, lead=lead, frames=frames, scale=Scale(32, 8, sound.per_second), render_side=None)


def a_sine(pitch: float, loudness: float = 0.5, seconds: float = SECONDS, rate: int = 48_000) -> Sound:
    samples = loudness * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)
    return Sound(samples.astype(np.float32), rate)


def bin_of(pitch: float) -> float:
    """Slaney's scale: lines up to 1 kHz, then logarithms; bins are centred on 1 to BINS of BINS + 1 parts."""

    def mel(hertz: float) -> float:
        return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)

    return mel(pitch) / mel(RATE / 2) * (BINS + 1) - 1


@pytest.mark.parametrize("pitch", [220.0, 3000.0])
def test_a_tone_has_its_energy_in_the_bins_of_its_pitch(pitch: float) -> None:
    waves = spectrogram(a_sine(pitch)).exp()[0]
    middle = waves[10:-10].mean(0)
    assert abs(int(middle.argmax()) - bin_of(pitch)) <= 1
    near = torch.arange(BINS).sub(bin_of(pitch)).abs() <= 2.5
    assert middle[near].sum() > 0.9 * middle.sum()


def test_columns_are_where_they_are_heard() -> None:
    half = round(SECONDS / 2 * RATE)
    samples = np.concatenate([np.zeros(half), a_sine(1000.0, seconds=SECONDS / 2, rate=RATE).samples[0]])
    loud = spectrogram(Sound(samples.astype(np.float32), RATE))[0].max(-1).values > -2
    onset = int(loud.int().argmax())
    assert abs(onset * 160 - half) <= 512 + 160
    assert loud[onset:-4].all()


def test_silence_is_as_quiet_as_can_be_said() -> None:
    silent = spectrogram(Sound(np.zeros((2, 48_000), np.float32), 48_000))
    assert torch.allclose(silent, torch.tensor(math.log(1e-5)))


def test_two_ears_hear_each_its_own_and_one_hears_both() -> None:
    left = np.stack([a_sine(440.0).samples[0], np.zeros(round(SECONDS * 48_000), np.float32)])
    sound = Sound(left.astype(np.float32), 48_000)
    both = spectrogram(sound, ears=2)
    assert both.shape == (2, both.shape[1], BINS)
    assert both[0].max() > 0
    assert (both[1] < math.log(1.1e-5)).all()
    alone = spectrogram(sound)
    assert torch.allclose(alone[0, 10:-10].max(-1).values, both[0, 10:-10].max(-1).values - math.log(2), atol=0.01)


def test_a_lead_that_is_too_short_ends_in_silence_and_one_too_long_is_cut() -> None:
    short = spectrogram(a_sine(1000.0, seconds=SECONDS / 2))[0].max(-1).values
    assert short[:40].min() > 0
    assert torch.allclose(short[-20:], torch.tensor(math.log(1e-5)))
    exact, longer = (spectrogram(a_sine(1000.0, seconds=seconds)) for seconds in (SECONDS, 2 * SECONDS))
    assert torch.equal(exact, longer)


@pytest.mark.parametrize("lead", [1, 25])
def test_what_is_heard_with_the_lead_is_known(lead: int) -> None:
    sound = two_eared()
    shape = a_shape(sound, lead, 24)
    with torch.inference_mode():
        stream = sound.stream(shape, a_sine(440.0, seconds=lead / FPS))
        silent = sound.stream(shape, a_sine(440.0, loudness=0.0, seconds=lead / FPS))
    known = shape.sound_lead
    assert known > 0
    assert stream.known[0, :, 0].tolist() == [1.0] * known + [0.0] * (shape.sound_latents - known)
    assert torch.equal(stream.x, stream.given)
    assert (stream.x[:, known:] == 0).all()
    assert torch.isfinite(stream.x).all()
    assert not torch.allclose(stream.x[:, :known], silent.x[:, :known], atol=0.01)
    assert stream.places.shape == (1, 1, shape.sound_latents, 2)


def test_a_lead_that_reads_as_nothing_the_model_knows_is_not_given() -> None:
    """The bundled encoder takes amplitudes, not logarithms."""
    sound = bundled()
    shape = a_shape(sound, lead=25, frames=24)
    stream = sound.stream(shape, a_sine(440.0, seconds=25 / FPS))
    assert (stream.known == 0).all()
    assert (stream.x == 0).all()


def test_nothing_is_known_without_a_lead_or_its_sound(sound: ClipSound) -> None:
    for shape, lead in ((a_shape(sound, 9, 24), None), (a_shape(sound, 0, 24), a_sine(440.0))):
        stream = sound.stream(shape, lead)
        assert stream.x.shape[1] == shape.sound_latents
        assert (stream.known == 0).all()
        assert (stream.x == 0).all()


def test_tokens_are_latents_and_back(sound: ClipSound) -> None:
    shape = a_shape(sound, 0, 33)
    latents = torch.randn(sound.latent_shape(shape))
    tokens = sound.tokens(latents)
    assert tokens.shape == sound.stream(shape, None).x.shape
    assert torch.allclose(sound.latents(tokens), latents, atol=1e-5)


@pytest.mark.parametrize(("lead", "frames"), [(0, 1), (0, 31), (9, 7)])
def test_what_is_heard_is_exactly_as_long_as_the_new_frames(sound: ClipSound, lead: int, frames: int) -> None:
    shape = a_shape(sound, lead, frames)
    with torch.inference_mode():
        heard = sound.decoded(shape, torch.randn(sound.stream(shape, None).x.shape))
    assert heard.samples.shape == (2, round(frames / FPS * heard.rate))
    assert np.isfinite(heard.samples).all()


def test_no_vocoder_rounds_as_tf32_does() -> None:
    sound, allowed = two_eared(), [torch.backends.cudnn.allow_tf32]
    shape = a_shape(sound, 0, 9)
    sound._vocoder.register_forward_pre_hook(lambda *_: allowed.append(torch.backends.cudnn.allow_tf32))
    with torch.inference_mode():
        sound.decoded(shape, sound.stream(shape, None).x)
    assert [*allowed, torch.backends.cudnn.allow_tf32] == [True, False, True]


def test_what_is_heard_with_the_lead_is_left_out(sound: ClipSound) -> None:
    whole, behind = a_shape(sound, 0, 33), a_shape(sound, 9, 24)
    assert whole.sound_latents == behind.sound_latents
    tokens = torch.randn(sound.stream(whole, None).x.shape)
    with torch.inference_mode():
        all_of_it, rest = sound.decoded(whole, tokens), sound.decoded(behind, tokens)
    begin = round(9 / FPS * rest.rate)
    kept = all_of_it.samples[:, begin : begin + rest.samples.shape[1]]
    assert np.array_equal(rest.samples[:, : kept.shape[1]], kept)
