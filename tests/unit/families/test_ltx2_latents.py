from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_ltx2 import AutoencoderKLLTX2Video
from diffusers.models.autoencoders.autoencoder_kl_ltx2_audio import AutoencoderKLLTX2Audio
from diffusers.models.transformers.transformer_ltx2 import LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deployments.contract.model import BUNDLED
from deployments.contract.request import FPS
from deployments.families import ltx2_latents
from deployments.families.canvas import Scale, VideoShape, video_shape
from deployments.families.ltx2_latents import AudioLatents, VideoLatents
from deployments.images import Pixels
from deployments.video.writer import Audio


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def videos() -> VideoLatents:
    folder = str(BUNDLED / "ltx2")
    vae = AutoencoderKLLTX2Video.from_pretrained(folder, subfolder="vae", torch_dtype=torch.float32)
    transformer = LTX2VideoTransformer3DModel.from_pretrained(
        folder, subfolder="transformer", torch_dtype=torch.float32
    )
    return VideoLatents(vae, transformer, torch.device("cpu"))


def make_shape(videos: VideoLatents, lead: int, frames: int, width: int = 96, height: int = 64) -> VideoShape:
    return video_shape(
        width, height, lead=lead, frames=frames, scale=Scale(videos.space, videos.time, 12.5), render_side=None
    )


def waves(frames: int, width: int = 96, height: int = 64) -> Pixels:
    """Returns smooth frames that differ at each time and position."""
    t, y, x = (axis.astype(float) for axis in np.ogrid[:frames, :height, :width])
    red = np.sin((x + 3 * t) / 15) * np.cos(y / 20)
    green = np.cos((x - 2 * t) / 25 + y / 40)
    blue = np.sin(t / 8 + y / 30 + x / 50)
    return (127.5 + 120 * np.stack(np.broadcast_arrays(red, green, blue), axis=-1)).astype(np.uint8)


def condition_tokens(videos: VideoLatents, shape: VideoShape, frames: Pixels) -> Tensor:
    """Returns the tokens of a video with given frames."""
    stream = videos.stream(shape, frames, [])
    assert (stream.conditioning_mask == 1).all()
    return stream.x


def psnr(one: Pixels, other: Pixels) -> float:
    error = np.square(one.astype(float) - other).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def test_video_tokens_and_latents_convert_both_ways(videos: VideoLatents) -> None:
    shape = make_shape(videos, 0, 25)
    latents = torch.randn(1, videos.channels, *shape.grid)
    tokens = videos.tokens(latents)
    assert tokens.shape == (1, shape.tokens, videos.channels)
    assert torch.allclose(videos.latents(shape, tokens), latents, atol=1e-5)
    behind = torch.cat([tokens, torch.randn(1, 7, videos.channels)], dim=1)
    assert torch.equal(videos.latents(shape, behind), videos.latents(shape, tokens))


@pytest.mark.parametrize(("lead", "frames", "chunk"), [(0, 1, 8), (0, 40, 1), (9, 33, 1), (9, 33, 3)])
def test_chunked_decoding_gives_the_same_frames(
    videos: VideoLatents, monkeypatch: pytest.MonkeyPatch, lead: int, frames: int, chunk: int
) -> None:
    shape = make_shape(videos, lead, frames)
    whole_shape = make_shape(videos, 0, shape.decoded_frames)
    tokens = condition_tokens(videos, whole_shape, waves(shape.decoded_frames))
    monkeypatch.setattr(ltx2_latents, "_MAX_CHUNK", whole_shape.latents)
    [whole] = videos.decode_frames(whole_shape, tokens)
    monkeypatch.setattr(ltx2_latents, "_MAX_CHUNK", chunk)
    parts = list(videos.decode_frames(shape, tokens))
    assert len(parts) == videos.chunks(shape)
    assert all(len(part) for part in parts)
    assert len(np.concatenate(parts)) == frames
    assert np.array_equal(np.concatenate(parts), whole[lead : lead + frames])


@given(lead=st.integers(-1, 3), frames=st.integers(1, 500), width=st.integers(64, 2500), height=st.integers(64, 2500))
def test_chunk_size_is_bounded(videos: VideoLatents, lead: int, frames: int, width: int, height: int) -> None:
    shape = make_shape(videos, 1 + lead * videos.time if lead >= 0 else 0, frames, width, height)
    chunks = videos.chunks(shape)
    latents = -(-(shape.latents - shape.lead_latents) // chunks)
    rows, columns = shape.canvas.size
    assert latents == 1 or latents * videos.time * rows * columns <= 32 * 1280 * 704


def test_frames_are_cropped_from_the_middle(videos: VideoLatents) -> None:
    full, cut = make_shape(videos, 0, 9), make_shape(videos, 0, 9, width=70, height=50)
    tokens = condition_tokens(videos, full, waves(9))
    assert cut.grid == full.grid
    [crop], [whole] = videos.decode_frames(cut, tokens), videos.decode_frames(full, tokens)
    assert crop.shape == (9, 50, 70, 3)
    assert np.array_equal(crop, whole[:, 7:57, 13:83])
    assert np.array_equal(videos.first_frame(cut, tokens), crop[0])


@pytest.mark.parametrize("lead", [0, 9])
def test_first_frame_is_the_first_new_one(videos: VideoLatents, lead: int) -> None:
    shape = make_shape(videos, lead, 16)
    tokens = condition_tokens(videos, make_shape(videos, 0, shape.decoded_frames), waves(shape.decoded_frames))
    frame = videos.first_frame(shape, tokens)
    assert np.array_equal(frame, next(iter(videos.decode_frames(shape, tokens)))[0])


def test_lead_fixes_whole_latents(videos: VideoLatents) -> None:
    shape = make_shape(videos, 9, 16)
    stream = videos.stream(shape, waves(9), [])
    area = shape.grid[1] * shape.grid[2]
    assert stream.conditioning_mask[0, :, 0].tolist() == [1.0] * (2 * area) + [0.0] * (shape.tokens - 2 * area)
    assert torch.equal(stream.x, stream.clean_latents)
    assert (stream.x[:, 2 * area :] == 0).all()


def test_keyframe_at_the_start_is_the_first_latent(videos: VideoLatents) -> None:
    shape, [video] = make_shape(videos, 0, 25), waves(1)
    stream = videos.stream(shape, None, [(0.0, video)])
    area = shape.grid[1] * shape.grid[2]
    assert stream.x.shape[1] == shape.tokens
    assert stream.conditioning_mask.sum() == area
    frame = next(iter(videos.decode_frames(shape, stream.x)))[0]
    assert psnr(frame, video) > 25


@pytest.mark.parametrize(("lead", "seconds", "frame"), [(0, 0.5, 12), (0, 20.0, 24), (9, 0.0, 9)])
def test_later_keyframe_is_appended_with_its_time(videos: VideoLatents, lead: int, seconds: float, frame: int) -> None:
    """The time counts from the first new frame and is at most that of the last."""
    shape, [video] = make_shape(videos, lead, 25), waves(1)
    stream = videos.stream(shape, waves(lead) if lead else None, [(seconds, video)])
    area = shape.grid[1] * shape.grid[2]
    assert stream.x.shape[1] == stream.conditioning_mask.shape[1] == stream.positions.shape[2] == shape.tokens + area
    assert (stream.conditioning_mask[:, -area:] == 1).all()
    begin, end = stream.positions[0, 0, -area:].unbind(-1)
    assert torch.allclose(begin, torch.tensor(frame / FPS))
    assert torch.allclose(end, torch.tensor((frame + 1) / FPS))
    assert torch.equal(stream.positions[:, 1:, -area:], stream.positions[:, 1:, :area])
    alone = videos.stream(make_shape(videos, 0, 1), None, [(0.0, video)])
    assert torch.equal(stream.x[:, -area:], alone.x)


@pytest.mark.parametrize("size", [(192, 64), (40, 30)])
def test_images_of_any_size_cover_the_canvas(videos: VideoLatents, size: tuple[int, int]) -> None:
    """Images are centred and not distorted."""
    width, height = size
    y, x = np.ogrid[:height, :width]
    radius = min(width / 96, height / 64) * 20
    disc = (x - (width - 1) / 2) ** 2 + (y - (height - 1) / 2) ** 2 < radius**2
    video = np.where(disc, 255, 0).astype(np.uint8)[..., None].repeat(3, axis=-1)
    shape = make_shape(videos, 0, 1)
    mask = next(videos.decode_frames(shape, condition_tokens(videos, shape, video[None])))[0, ..., 0] > 127
    rows, columns = np.nonzero(mask)
    assert abs(rows.mean() - 31.5) < 1.5
    assert abs(columns.mean() - 47.5) < 1.5
    assert abs(np.ptp(rows) - 40) <= 4
    assert abs(np.ptp(columns) - 40) <= 4


def test_bfloat16_decoder_gives_bytes(videos: VideoLatents, monkeypatch: pytest.MonkeyPatch) -> None:
    vae: Any = AutoencoderKLLTX2Video.from_pretrained(
        str(BUNDLED / "ltx2"), subfolder="vae", torch_dtype=torch.bfloat16
    )
    monkeypatch.setattr(videos, "_vae", vae)
    shape = make_shape(videos, 0, 9)
    tokens = condition_tokens(videos, shape, waves(9))
    assert tokens.dtype == torch.float32
    [decoded_frames] = videos.decode_frames(shape, tokens)
    assert decoded_frames.dtype == np.uint8
    assert psnr(decoded_frames, waves(9)) > 20


CPU = torch.device("cpu")
RATE, BINS = 16_000, 64
SECONDS = 25 / FPS


class Spectrograms:
    """A fake autoencoder whose latents are the columns of the spectrogram."""

    temporal_compression_ratio = 1
    mel_compression_ratio = 1
    dtype = torch.float32

    def __init__(self, ears: int) -> None:
        self.config = SimpleNamespace(sample_rate=RATE, mel_hop_length=160, mel_bins=BINS, in_channels=ears)
        self.latents_mean = torch.full((ears * BINS,), -5.0)
        self.latents_std = torch.full((ears * BINS,), 5.0)

    def encode(self, spectrogram: Tensor) -> Any:
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: spectrogram))


def fake_transformer(channels: int) -> Any:
    """Returns the parts of a transformer that audio latents need."""
    rope = SimpleNamespace(prepare_audio_coords=lambda rows, length, device: torch.zeros(rows, 1, length, 2))
    return SimpleNamespace(audio_rope=rope, config=SimpleNamespace(audio_in_channels=channels))


def spectrogram(lead: Audio, ears: int = 1) -> Tensor:
    """Returns the logarithmic spectrogram, (ears, T, BINS)."""
    audio = AudioLatents(Spectrograms(ears), None, fake_transformer(ears * BINS), CPU)
    shape = make_audio_shape(audio, lead=25, frames=8)
    stream = audio.stream(shape, lead)
    return audio.latents(stream.clean_latents[:, : shape.audio_lead])[0]


@cache
def load_bundled() -> AudioLatents:
    folder = str(BUNDLED / "ltx2")
    vae = AutoencoderKLLTX2Audio.from_pretrained(folder, subfolder="audio_vae", torch_dtype=torch.float32)
    vocoder = LTX2Vocoder.from_pretrained(folder, subfolder="vocoder", torch_dtype=torch.float32)
    transformer = LTX2VideoTransformer3DModel.from_pretrained(
        folder, subfolder="transformer", torch_dtype=torch.float32
    )
    return AudioLatents(vae, vocoder, transformer, CPU)


@cache
def load_stereo() -> AudioLatents:
    """Returns a tiny audio autoencoder like those of large models, with random weights."""
    torch.manual_seed(0)
    channels: Any = {"base_channels": 32, "output_channels": 2, "in_channels": 2, "latent_channels": 2}
    read: Any = {"mel_bins": BINS, "sample_rate": RATE, "mel_hop_length": 160, "causality_axis": "height"}
    vae = AutoencoderKLLTX2Audio(**channels, **read, ch_mult=(1, 2, 4), num_res_blocks=1, norm_type="pixel")
    vocoder = LTX2Vocoder(in_channels=2 * BINS, hidden_channels=64)
    return AudioLatents(vae, vocoder, fake_transformer(2 * BINS // 4), CPU)


@pytest.fixture(params=[load_bundled, load_stereo], ids=["bundled", "stereo"])
def audio(request: pytest.FixtureRequest) -> AudioLatents:
    return request.param()


def make_audio_shape(audio: AudioLatents, lead: int, frames: int) -> VideoShape:
    return video_shape(64, 64, lead=lead, frames=frames, scale=Scale(32, 8, audio.per_second), render_side=None)


def sine(pitch: float, loudness: float = 0.5, seconds: float = SECONDS, rate: int = 48_000) -> Audio:
    samples = loudness * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)
    return Audio(samples.astype(np.float32), rate)


def to_bin(pitch: float) -> float:
    """Returns the bin of a pitch on Slaney's mel scale: linear up to 1 kHz, then logarithmic."""

    def mel(hertz: float) -> float:
        return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)

    return mel(pitch) / mel(RATE / 2) * (BINS + 1) - 1


@pytest.mark.parametrize("pitch", [220.0, 3000.0])
def test_tone_is_in_the_bins_of_its_pitch(pitch: float) -> None:
    waves = spectrogram(sine(pitch)).exp()[0]
    middle = waves[10:-10].mean(0)
    assert abs(int(middle.argmax()) - to_bin(pitch)) <= 1
    near = torch.arange(BINS).sub(to_bin(pitch)).abs() <= 2.5
    assert middle[near].sum() > 0.9 * middle.sum()


def test_spectrogram_columns_match_the_time() -> None:
    half = round(SECONDS / 2 * RATE)
    samples = np.concatenate([np.zeros(half), sine(1000.0, seconds=SECONDS / 2, rate=RATE).samples[0]])
    loud = spectrogram(Audio(samples.astype(np.float32), RATE))[0].max(-1).values > -2
    onset = int(loud.int().argmax())
    assert abs(onset * 160 - half) <= 512 + 160
    assert loud[onset:-4].all()


def test_silence_is_the_minimum() -> None:
    silent = spectrogram(Audio(np.zeros((2, 48_000), np.float32), 48_000))
    assert torch.allclose(silent, torch.tensor(math.log(1e-5)))


def test_stereo_channels_are_separate_and_mono_mixes_them() -> None:
    left = np.stack([sine(440.0).samples[0], np.zeros(round(SECONDS * 48_000), np.float32)])
    audio = Audio(left.astype(np.float32), 48_000)
    both = spectrogram(audio, ears=2)
    assert both.shape == (2, both.shape[1], BINS)
    assert both[0].max() > 0
    assert (both[1] < math.log(1.1e-5)).all()
    alone = spectrogram(audio)
    assert torch.allclose(alone[0, 10:-10].max(-1).values, both[0, 10:-10].max(-1).values - math.log(2), atol=0.01)


def test_lead_audio_is_padded_or_cut() -> None:
    short = spectrogram(sine(1000.0, seconds=SECONDS / 2))[0].max(-1).values
    assert short[:40].min() > 0
    assert torch.allclose(short[-20:], torch.tensor(math.log(1e-5)))
    exact, longer = (spectrogram(sine(1000.0, seconds=seconds)) for seconds in (SECONDS, 2 * SECONDS))
    assert torch.equal(exact, longer)


@pytest.mark.parametrize("lead", [1, 25])
def test_lead_audio_fixes_its_tokens(lead: int) -> None:
    audio = load_stereo()
    shape = make_audio_shape(audio, lead, 24)
    stream = audio.stream(shape, sine(440.0, seconds=lead / FPS))
    silent = audio.stream(shape, sine(440.0, loudness=0.0, seconds=lead / FPS))
    lead_tokens = shape.audio_lead
    assert lead_tokens > 0
    assert stream.conditioning_mask[0, :, 0].tolist() == [1.0] * lead_tokens + [0.0] * (
        shape.audio_latents - lead_tokens
    )
    assert torch.equal(stream.x, stream.clean_latents)
    assert (stream.x[:, lead_tokens:] == 0).all()
    assert torch.isfinite(stream.x).all()
    assert not torch.allclose(stream.x[:, :lead_tokens], silent.x[:, :lead_tokens], atol=0.01)
    assert stream.positions.shape == (1, 1, shape.audio_latents, 2)


def test_unusable_lead_audio_is_ignored() -> None:
    """The bundled encoder expects amplitudes, not logarithms."""
    audio = load_bundled()
    shape = make_audio_shape(audio, lead=25, frames=24)
    stream = audio.stream(shape, sine(440.0, seconds=25 / FPS))
    assert (stream.conditioning_mask == 0).all()
    assert (stream.x == 0).all()


def test_no_lead_audio_fixes_no_tokens(audio: AudioLatents) -> None:
    for shape, lead in ((make_audio_shape(audio, 9, 24), None), (make_audio_shape(audio, 0, 24), sine(440.0))):
        stream = audio.stream(shape, lead)
        assert stream.x.shape[1] == shape.audio_latents
        assert (stream.conditioning_mask == 0).all()
        assert (stream.x == 0).all()


def test_audio_tokens_and_latents_convert_both_ways(audio: AudioLatents) -> None:
    shape = make_audio_shape(audio, 0, 33)
    latents = torch.randn(audio.latent_shape(shape))
    tokens = audio.tokens(latents)
    assert tokens.shape == audio.stream(shape, None).x.shape
    assert torch.allclose(audio.latents(tokens), latents, atol=1e-5)


@pytest.mark.parametrize(("lead", "frames"), [(0, 31), (9, 7)])
def test_audio_is_as_long_as_the_new_frames(audio: AudioLatents, lead: int, frames: int) -> None:
    shape = make_audio_shape(audio, lead, frames)
    decoded_audio = audio.decode(shape, torch.randn(audio.stream(shape, None).x.shape))
    assert decoded_audio.samples.shape == (2, round(frames / FPS * decoded_audio.rate))
    assert np.isfinite(decoded_audio.samples).all()


def test_vocoder_runs_without_tf32() -> None:
    audio, allowed = load_stereo(), [torch.backends.cudnn.allow_tf32]
    shape = make_audio_shape(audio, 0, 9)
    hook = audio._vocoder.register_forward_pre_hook(lambda *_: allowed.append(torch.backends.cudnn.allow_tf32))
    audio.decode(shape, audio.stream(shape, None).x)
    hook.remove()
    assert [*allowed, torch.backends.cudnn.allow_tf32] == [True, False, True]


def test_lead_audio_is_cut_from_the_output(audio: AudioLatents) -> None:
    whole, behind = make_audio_shape(audio, 0, 33), make_audio_shape(audio, 9, 24)
    assert whole.audio_latents == behind.audio_latents
    tokens = torch.randn(audio.stream(whole, None).x.shape)
    all_of_it, rest = audio.decode(whole, tokens), audio.decode(behind, tokens)
    begin = round(9 / FPS * rest.rate)
    tail = all_of_it.samples[:, begin : begin + rest.samples.shape[1]]
    assert np.array_equal(rest.samples[:, : tail.shape[1]], tail)
