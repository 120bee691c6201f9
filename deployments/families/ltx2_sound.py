"""The sound side of LTX-2's clips: samples to latent tokens by way of a mel spectrogram, and back by a vocoder."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from transformers.audio_utils import mel_filter_bank

from deployments.contract.clip import FPS
from deployments.families.clip_shape import ClipShape
from deployments.families.clip_state import Stream
from deployments.families.finite import finite
from deployments.video.sound import Sound

_WINDOW: Final = 1024
"""Samples of the spectrogram's window, as LTX-2 was trained with; the checkpoint doesn't say."""
_QUIETEST: Final = 1e-5
_FARTHEST: Final = 5.0
"""From zero, that tokens are on average: those of the sounds a model was trained with are about 1 away."""


class ClipSound:
    def __init__(self, vae: Any, vocoder: Any, transformer: Any, device: torch.device) -> None:
        """`vocoder` is in float32, as its makers run it: in half the precision its many layers blur what is heard."""
        self._vae = vae
        self._vocoder = vocoder
        self._rope = transformer.audio_rope
        self._device = device
        self._mean = vae.latents_mean.to(device, torch.float32)
        self._std = vae.latents_std.to(device, torch.float32)
        self._rate = int(vae.config.sample_rate)
        self._hop = int(vae.config.mel_hop_length)
        self._stretch = int(vae.temporal_compression_ratio)
        self._bands = int(vae.config.mel_bins) // int(vae.mel_compression_ratio)
        self._ears = int(vae.config.in_channels)
        self._channels = int(transformer.config.audio_in_channels)
        filters = mel_filter_bank(
            _WINDOW // 2 + 1,
            int(vae.config.mel_bins),
            0.0,
            self._rate / 2,
            self._rate,
            norm="slaney",
            mel_scale="slaney",
        )
        self._filters = torch.from_numpy(filters).to(device, torch.float32)
        self.per_second = self._rate / self._hop / self._stretch

    def stream(self, shape: ClipShape, lead: Sound | None) -> Stream:
        """Tokens without noise yet; what is heard with the lead, if anything is known of it, is given.

        Unless it reads as nothing that the model has ever met: then the checkpoint's encoder is for other spectrograms.
        """
        length = shape.sound_latents
        x = torch.zeros((1, length, self._channels), device=self._device)
        known = torch.zeros((1, length, 1), device=self._device)
        if lead is not None and shape.sound_lead > 0:
            tokens = self.tokens(self._encoded(lead.fitted(shape.lead / FPS), shape.sound_lead))
            if tokens.abs().mean() > _FARTHEST:
                tokens = tokens[:, :0]
            x[:, : tokens.shape[1]], known[:, : tokens.shape[1]] = tokens, 1.0
        return Stream(x, known, x.clone(), self._rope.prepare_audio_coords(1, length, self._device))

    def tokens(self, latents: Tensor) -> Tensor:
        """The decoder's latents (1, C, L, bands) to tokens (1, L, C x bands) about as large as noise."""
        return (latents.transpose(1, 2).flatten(2) - self._mean) / self._std

    def latents(self, tokens: Tensor) -> Tensor:
        """The other way round."""
        return (tokens * self._std + self._mean).unflatten(2, (-1, self._bands)).transpose(1, 2)

    def latent_shape(self, shape: ClipShape) -> tuple[int, int, int, int]:
        """Of the decoder's latents of a whole clip."""
        return 1, self._channels // self._bands, shape.sound_latents, self._bands

    def decoded(self, shape: ClipShape, tokens: Tensor) -> Sound:
        """What is heard with the new frames. Raises NotFinite."""
        spectrogram = self._vae.decode(self.latents(tokens).to(self._vae.dtype), return_dict=False)[0]
        rate = int(self._vocoder.config.output_sampling_rate)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            samples = finite(self._vocoder(spectrogram.float())[0]).float().cpu().numpy()
        begin = round(shape.lead / FPS * rate)
        return Sound(samples[:, begin:], rate).fitted(shape.frames / FPS)

    def _encoded(self, sound: Sound, length: int) -> Tensor:
        """Latents (1, C, length, bands) float32."""
        spectrogram = self._spectrogram(sound)[:, :, : (length - 1) * self._stretch + 1]
        return self._vae.encode(spectrogram.to(self._vae.dtype)).latent_dist.mode().float()[:, :, :length]

    def _spectrogram(self, sound: Sound) -> Tensor:
        """Logarithms of mel magnitudes, (1, ears, T, bins): one column every hop, the first around sample 0."""
        samples = torch.from_numpy(sound.resampled(self._rate).samples.copy()).to(self._device)
        if self._ears == 1:
            samples = samples.mean(0, keepdim=True)
        window = torch.hann_window(_WINDOW, device=self._device)
        waves = torch.stft(samples, _WINDOW, self._hop, window=window, center=True, return_complex=True).abs()
        return (waves.transpose(1, 2) @ self._filters).clamp(min=_QUIETEST).log()[None]
