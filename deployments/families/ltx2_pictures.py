"""The picture side of LTX-2's clips: frames to latent tokens, and back in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.contract.clip import FPS
from deployments.families.clip_shape import ClipShape
from deployments.families.clip_state import Stream
from deployments.families.finite import finite
from deployments.pictures.pixels import Pixels
from deployments.pictures.recompression import recompressed

_CHUNK_PIXELS: Final = 32 * 1280 * 704
"""Of the frames that are decoded at a time: what the decoder needs grows with them."""
_MOST_LATENTS: Final = 4
_CONTEXT: Final = 2
"""Latents on either side of a chunk that are decoded with it."""


class ClipPictures:
    def __init__(self, vae: Any, transformer: Any, device: torch.device, keyframe_crf: int = 0) -> None:
        """Keyframes are compressed by H.264 of `keyframe_crf` first; 0: not at all."""
        self._vae = vae
        self._keyframe_crf = keyframe_crf
        self._rope = transformer.rope
        self._device = device
        self._mean = vae.latents_mean.view(1, -1, 1, 1, 1).to(device, torch.float32)
        self._std = vae.latents_std.view(1, -1, 1, 1, 1).to(device, torch.float32)
        self.space = int(vae.spatial_compression_ratio)
        self.time = int(vae.temporal_compression_ratio)
        self.channels = int(transformer.config.in_channels)

    def stream(self, shape: ClipShape, lead: Pixels | None, keyframes: Sequence[tuple[float, Pixels]]) -> Stream:
        """Tokens without noise yet. `lead` is (F, H, W, 3); keyframes are at their seconds from the new beginning.

        What begins the clip takes the place of its first tokens; keyframes further on are tokens behind its own.
        """
        latents, rows, columns = shape.grid
        x = torch.zeros((1, shape.tokens, self.channels), device=self._device)
        known = torch.zeros((1, shape.tokens, 1), device=self._device)
        places = self._rope.prepare_video_coords(1, latents, rows, columns, self._device, fps=float(FPS))
        further: list[tuple[Tensor, Tensor]] = []
        first = [] if lead is None else [lead]
        for seconds, picture in keyframes:
            if self._keyframe_crf:
                picture = recompressed(picture, self._keyframe_crf)
            frame = shape.lead + min(round(seconds * FPS), shape.frames - 1)
            if frame == 0:
                first.append(picture[None])
            else:
                further.append((self._encoded(shape, picture[None]), self._place(shape, frame)))
        for frames in first:
            tokens = self._encoded(shape, frames)
            x[:, : tokens.shape[1]], known[:, : tokens.shape[1]] = tokens, 1.0
        if further:
            tokens = torch.cat([tokens for tokens, _ in further], dim=1)
            x = torch.cat([x, tokens], dim=1)
            known = torch.cat([known, torch.ones_like(tokens[..., :1])], dim=1)
            places = torch.cat([places, *(place for _, place in further)], dim=2)
        return Stream(x, known, x.clone(), places)

    def tokens(self, latents: Tensor) -> Tensor:
        """The decoder's latents (1, C, F, h, w) to tokens (1, F x h x w, C) about as large as noise."""
        return ((latents - self._mean) * self._vae.config.scaling_factor / self._std).flatten(2).transpose(1, 2)

    def latents(self, shape: ClipShape, tokens: Tensor) -> Tensor:
        """The other way round."""
        latents = tokens[:, : shape.tokens].transpose(1, 2).unflatten(2, shape.grid)
        return latents * self._std / self._vae.config.scaling_factor + self._mean

    def chunks(self, shape: ClipShape) -> int:
        return -(-(shape.latents - shape.lead_latents) // self._chunk(shape))

    def decoded(self, shape: ClipShape, tokens: Tensor) -> Iterator[Pixels]:
        """The new frames, a chunk at a time."""
        left = shape.frames
        for frames in self._chunks(self.latents(shape, tokens), shape.lead_latents, self._chunk(shape)):
            kept = frames[:left]
            left -= len(kept)
            yield self._cropped(shape, kept)

    def redrawn(self, latents: Tensor, shape: ClipShape) -> Tensor:
        """A whole clip's latents of any height and width, (1, C, F, h, w), as of this shape: decoded and encoded again.

        Latents themselves can't be stretched: a decoder repeats within each what it stands for.
        """
        frames = torch.cat(list(self._chunks(latents, 0, self._chunk(shape)))).numpy()
        # A whole clip at once would need more than there is: 80 GiB for twenty seconds in full HD.
        self._vae.enable_tiling()
        try:
            return self.latents(shape, self._encoded(shape, frames, stretched=True))
        finally:
            self._vae.disable_tiling()

    def still(self, shape: ClipShape, tokens: Tensor) -> Pixels:
        """The first new frame, (height, width, 3)."""
        start = shape.lead_latents
        behind = 1 if start > 0 else 0  # a latent decoded first stands for one frame, whichever it is
        frames = self._decode(self.latents(shape, tokens)[:, :, start - behind : start + 1])
        return self._cropped(shape, frames[behind : behind + 1])[0]

    def _chunks(self, latents: Tensor, first: int, chunk: int) -> Iterator[Tensor]:
        """The frames of the latents from `first` on, `chunk` latents at a time.

        Some latents before each chunk and behind it are decoded with it, and dropped: what is next to a frame shows in
        it.
        """
        for start in range(first, latents.shape[2], chunk):
            stop, before = min(start + chunk, latents.shape[2]), min(start, _CONTEXT)
            with torch.inference_mode():  # a generator runs in its caller's mode
                frames = self._decode(latents[:, :, start - before : stop + _CONTEXT])
            # Whichever is decoded first stands for a single frame.
            begin, end = (self._frames_of(latents) for latents in (before, before + stop - start))
            yield frames[begin:end]

    def _frames_of(self, latents: int) -> int:
        return (latents - 1) * self.time + 1 if latents else 0

    def _chunk(self, shape: ClipShape) -> int:
        """Latents to decode at a time."""
        height, width = shape.canvas.size
        return max(1, min(_MOST_LATENTS, _CHUNK_PIXELS // (height * width * self.time)))

    def _decode(self, latents: Tensor) -> Tensor:
        """(1, C, f, h, w) to (F, H, W, 3) uint8 on the CPU. Raises NotFinite."""
        frames = finite(self._vae.decode(latents.to(self._vae.dtype), None, return_dict=False)[0])
        return ((frames[0].float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 3, 0).cpu()

    def _cropped(self, shape: ClipShape, frames: Tensor) -> Pixels:
        rows, columns = shape.canvas.crop
        return np.ascontiguousarray(frames[:, rows, columns].numpy())

    def _encoded(self, shape: ClipShape, frames: Pixels, *, stretched: bool = False) -> Tensor:
        """(F, H, W, 3) to tokens, (1, f x h x w, C): scaled to cover the canvas, and cut; or stretched to it."""
        height, width = shape.canvas.size
        pixels = torch.from_numpy(np.ascontiguousarray(frames)).to(self._device).permute(0, 3, 1, 2).float()
        scale = max(height / pixels.shape[2], width / pixels.shape[3])
        size = max(height, round(pixels.shape[2] * scale)), max(width, round(pixels.shape[3] * scale))
        if stretched:
            size = height, width
        pixels = F.interpolate(pixels, size=size, mode="bilinear", align_corners=False, antialias=scale < 1)
        top, left = (size[0] - height) // 2, (size[1] - width) // 2
        pixels = pixels[:, :, top : top + height, left : left + width] / 127.5 - 1
        video = pixels.clamp(-1, 1).permute(1, 0, 2, 3)[None].to(self._vae.dtype)
        # The most likely latents, not a sample: the same picture always reads the same.
        return self.tokens(self._vae.encode(video).latent_dist.mode().float())

    def _place(self, shape: ClipShape, frame: int) -> Tensor:
        """Where the tokens of a picture lie that is to be seen at `frame` alone, (1, 3, h x w, 2)."""
        rows, columns = shape.canvas.grid
        # As of a first frame, which is alone in its latent, too; then moved to its time.
        places = self._rope.prepare_video_coords(1, 1, rows, columns, self._device, fps=float(FPS)).clone()
        places[:, 0, :, 0], places[:, 0, :, 1] = frame / FPS, (frame + 1) / FPS
        return places
