"""Latents of LTX-2: encodes frames and sound to tokens, and decodes them in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.audio_utils import mel_filter_bank

from deployments.contract.request import FPS
from deployments.families.canvas import VideoShape
from deployments.families.vae import finite
from deployments.families.video_family import Stream
from deployments.images import Pixels, recompress
from deployments.video.writer import Audio

_CHUNK_PIXELS: Final = 32 * 1280 * 704
"""Pixels of the frames decoded at a time, by which the decoder's memory grows."""
_MAX_CHUNK: Final = 4
"""Latents decoded at a time at most."""
_CONTEXT: Final = 2
"""Latents on either side of a chunk that are decoded with it."""


class VideoLatents:
    def __init__(self, vae: Any, transformer: Any, device: torch.device, keyframe_crf: int = 0) -> None:
        """Keyframes are first compressed by H.264 with `keyframe_crf`; 0 for no compression."""
        self._vae = vae
        self._keyframe_crf = keyframe_crf
        self._rope = transformer.rope
        self._device = device
        self._mean = vae.latents_mean.view(1, -1, 1, 1, 1).to(device, torch.float32)
        self._std = vae.latents_std.view(1, -1, 1, 1, 1).to(device, torch.float32)
        self.space = int(vae.spatial_compression_ratio)
        self.time = int(vae.temporal_compression_ratio)
        self.channels = int(transformer.config.in_channels)

    def stream(self, shape: VideoShape, lead: Pixels | None, keyframes: Sequence[tuple[float, Pixels]]) -> Stream:
        """Returns tokens without noise. `lead` is (F, H, W, 3); keyframes have their seconds from the new beginning.

        Frames at the start of the video replace its first tokens; later keyframes are further tokens.
        """
        latents, rows, columns = shape.grid
        x = torch.zeros((1, shape.tokens, self.channels), device=self._device)
        conditioning_mask = torch.zeros((1, shape.tokens, 1), device=self._device)
        positions = self._rope.prepare_video_coords(1, latents, rows, columns, self._device, fps=float(FPS))
        further: list[tuple[Tensor, Tensor]] = []
        first = [] if lead is None else [lead]
        for seconds, video in keyframes:
            if self._keyframe_crf:
                video = recompress(video, self._keyframe_crf)
            frame = shape.lead + min(round(seconds * FPS), shape.frames - 1)
            if frame == 0:
                first.append(video[None])
            else:
                further.append((self._encode(shape, video[None]), self._keyframe_positions(shape, frame)))
        for frames in first:
            tokens = self._encode(shape, frames)
            x[:, : tokens.shape[1]], conditioning_mask[:, : tokens.shape[1]] = tokens, 1.0
        if further:
            tokens = torch.cat([tokens for tokens, _ in further], dim=1)
            x = torch.cat([x, tokens], dim=1)
            conditioning_mask = torch.cat([conditioning_mask, torch.ones_like(tokens[..., :1])], dim=1)
            positions = torch.cat([positions, *(each for _, each in further)], dim=2)
        return Stream(x, conditioning_mask, x.clone(), positions)

    def tokens(self, latents: Tensor) -> Tensor:
        """Converts the decoder's latents (1, C, F, h, w) to tokens (1, F x h x w, C) of about unit variance."""
        return ((latents - self._mean) * self._vae.config.scaling_factor / self._std).flatten(2).transpose(1, 2)

    def latents(self, shape: VideoShape, tokens: Tensor) -> Tensor:
        """Converts tokens (1, N, C) to the decoder's latents (1, C, F, h, w)."""
        latents = tokens[:, : shape.tokens].transpose(1, 2).unflatten(2, shape.grid)
        return latents * self._std / self._vae.config.scaling_factor + self._mean

    def chunks(self, shape: VideoShape) -> int:
        return -(-(shape.latents - shape.lead_latents) // self._chunk(shape))

    def decode_frames(self, shape: VideoShape, tokens: Tensor) -> Iterator[Pixels]:
        """Yields the new frames in chunks."""
        remaining = shape.frames
        for frames in self._chunks(self.latents(shape, tokens), shape.lead_latents, self._chunk(shape)):
            part = frames[:remaining]
            remaining -= len(part)
            yield self._crop(shape, part)

    def reencode(self, latents: Tensor, shape: VideoShape) -> Tensor:
        """Returns a whole video's latents (1, C, F, h, w), of any height and width, decoded and encoded in this shape.

        Latents can't be stretched: the decoder would repeat the content of each.
        """
        frames = torch.cat(list(self._chunks(latents, 0, self._chunk(shape)))).numpy()
        # In tiles, as a whole video needs too much memory: 80 GiB for twenty seconds in full HD.
        self._vae.enable_tiling()
        try:
            return self.latents(shape, self._encode(shape, frames, stretch=True))
        finally:
            self._vae.disable_tiling()

    def first_frame(self, shape: VideoShape, tokens: Tensor) -> Pixels:
        """Returns the first new frame, (height, width, 3)."""
        start = shape.lead_latents
        behind = 1 if start > 0 else 0  # the first latent decoded always stands for one frame
        frames = self._decode(self.latents(shape, tokens)[:, :, start - behind : start + 1])
        return self._crop(shape, frames[behind : behind + 1])[0]

    def _chunks(self, latents: Tensor, first: int, chunk: int) -> Iterator[Tensor]:
        """Yields the frames of the latents from `first` on, `chunk` latents at a time.

        Decodes some latents on either side of each chunk and drops their frames, as neighbours influence a frame.
        """
        for start in range(first, latents.shape[2], chunk):
            stop, before = min(start + chunk, latents.shape[2]), min(start, _CONTEXT)
            with torch.inference_mode():  # a generator runs in its caller's mode
                frames = self._decode(latents[:, :, start - before : stop + _CONTEXT])
            # The first latent decoded stands for a single frame.
            begin, end = ((count - 1) * self.time + 1 if count else 0 for count in (before, before + stop - start))
            yield frames[begin:end]

    def _chunk(self, shape: VideoShape) -> int:
        height, width = shape.canvas.size
        return max(1, min(_MAX_CHUNK, _CHUNK_PIXELS // (height * width * self.time)))

    def _decode(self, latents: Tensor) -> Tensor:
        """Decodes (1, C, f, h, w) to (F, H, W, 3) uint8 on the CPU. Raises NotFinite."""
        frames = finite(self._vae.decode(latents.to(self._vae.dtype), None, return_dict=False)[0])
        return ((frames[0].float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 3, 0).cpu()

    def _crop(self, shape: VideoShape, frames: Tensor) -> Pixels:
        rows, columns = shape.canvas.crop
        return np.ascontiguousarray(frames[:, rows, columns].numpy())

    def _encode(self, shape: VideoShape, frames: Pixels, *, stretch: bool = False) -> Tensor:
        """Encodes (F, H, W, 3) to tokens, (1, f x h x w, C): scaled to cover the canvas and cut, or stretched to it."""
        height, width = shape.canvas.size
        pixels = torch.from_numpy(np.ascontiguousarray(frames)).to(self._device).permute(0, 3, 1, 2).float()
        scale = max(height / pixels.shape[2], width / pixels.shape[3])
        size = max(height, round(pixels.shape[2] * scale)), max(width, round(pixels.shape[3] * scale))
        if stretch:
            size = height, width
        pixels = F.interpolate(pixels, size=size, mode="bilinear", align_corners=False, antialias=scale < 1)
        top, left = (size[0] - height) // 2, (size[1] - width) // 2
        pixels = pixels[:, :, top : top + height, left : left + width] / 127.5 - 1
        video = pixels.clamp(-1, 1).permute(1, 0, 2, 3)[None].to(self._vae.dtype)
        # The mode, not a sample, so that equal images have equal latents.
        return self.tokens(self._vae.encode(video).latent_dist.mode().float())

    def _keyframe_positions(self, shape: VideoShape, frame: int) -> Tensor:
        """Returns the positions of the tokens of an image at `frame`, (1, 3, h x w, 2)."""
        rows, columns = shape.canvas.grid
        # Those of a first frame, which has a latent of its own, moved to their time.
        positions = self._rope.prepare_video_coords(1, 1, rows, columns, self._device, fps=float(FPS)).clone()
        positions[:, 0, :, 0], positions[:, 0, :, 1] = frame / FPS, (frame + 1) / FPS
        return positions


_WINDOW: Final = 1024
"""Samples of the spectrogram's window that LTX-2 was trained with, which the checkpoint doesn't name."""
_MIN_MAGNITUDE: Final = 1e-5
_MAX_MEAN: Final = 5.0
"""Mean absolute value of tokens up to which the encoder is trusted; for sounds of the training it is about 1."""


class AudioLatents:
    def __init__(self, vae: Any, vocoder: Any, transformer: Any, device: torch.device) -> None:
        """`vocoder` is in float32, as half precision audibly blurs its result."""
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
        self._input_channels = int(vae.config.in_channels)
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

    def stream(self, shape: VideoShape, lead: Audio | None) -> Stream:
        """Returns tokens without noise, those of `lead` given.

        Ignores the lead if its tokens lie outside of the model's training: the checkpoint's encoder then expects other
        spectrograms.
        """
        length = shape.audio_latents
        x = torch.zeros((1, length, self._channels), device=self._device)
        conditioning_mask = torch.zeros((1, length, 1), device=self._device)
        if lead is not None and shape.audio_lead > 0:
            tokens = self.tokens(self._encode(lead.fit(shape.lead / FPS), shape.audio_lead))
            if tokens.abs().mean() > _MAX_MEAN:
                tokens = tokens[:, :0]
            x[:, : tokens.shape[1]], conditioning_mask[:, : tokens.shape[1]] = tokens, 1.0
        return Stream(x, conditioning_mask, x.clone(), self._rope.prepare_audio_coords(1, length, self._device))

    def tokens(self, latents: Tensor) -> Tensor:
        """Converts the decoder's latents (1, C, L, bands) to tokens (1, L, C x bands) of about unit variance."""
        return (latents.transpose(1, 2).flatten(2) - self._mean) / self._std

    def latents(self, tokens: Tensor) -> Tensor:
        """Converts tokens (1, L, C x bands) to the decoder's latents (1, C, L, bands)."""
        return (tokens * self._std + self._mean).unflatten(2, (-1, self._bands)).transpose(1, 2)

    def latent_shape(self, shape: VideoShape) -> tuple[int, int, int, int]:
        """Returns the shape of the decoder's latents for a whole video."""
        return 1, self._channels // self._bands, shape.audio_latents, self._bands

    def decode(self, shape: VideoShape, tokens: Tensor) -> Audio:
        """Returns the sound of the new frames. Raises NotFinite."""
        spectrogram = self._vae.decode(self.latents(tokens).to(self._vae.dtype), return_dict=False)[0]
        rate = int(self._vocoder.config.output_sampling_rate)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            samples = finite(self._vocoder(spectrogram.float())[0]).float().cpu().numpy()
        begin = round(shape.lead / FPS * rate)
        return Audio(samples[:, begin:], rate).fit(shape.frames / FPS)

    def _encode(self, audio: Audio, length: int) -> Tensor:
        """Returns latents (1, C, length, bands) float32."""
        spectrogram = self._spectrogram(audio)[:, :, : (length - 1) * self._stretch + 1]
        return self._vae.encode(spectrogram.to(self._vae.dtype)).latent_dist.mode().float()[:, :, :length]

    def _spectrogram(self, audio: Audio) -> Tensor:
        """Returns logarithms of mel magnitudes, (1, channels, T, bins): one column per hop, the first at sample 0."""
        samples = torch.from_numpy(audio.resample(self._rate).samples.copy()).to(self._device)
        if self._input_channels == 1:
            samples = samples.mean(0, keepdim=True)
        window = torch.hann_window(_WINDOW, device=self._device)
        waves = torch.stft(samples, _WINDOW, self._hop, window=window, center=True, return_complex=True).abs()
        return (waves.transpose(1, 2) @ self._filters).clamp(min=_MIN_MAGNITUDE).log()[None]
