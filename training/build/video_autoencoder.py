"""A video autoencoder whose weights are written down instead of trained, in the stock `AutoencoderKLLTX2Video`.

A latent cell stands for 32 x 32 pixels of 8 frames (the first for one frame alone) and holds averages: of 8 x 8 pixels,
of the earlier and the later four frames, of each colour. 96 numbers, in the order colour, row and column in a 16
pixel square, half, row and column of that square. The decoder draws a line in time through the two halves, and enlarges
bilinearly: soft, not sharp. A cell's frames come from its own latents alone, so decoding in pieces changes nothing.

What makes a convolutional network with norms linear: a constant beside which all colours are tiny rides along before
the last norm, which so divides by a known number; and near zero SiLU is half of its input.
"""

from __future__ import annotations

import torch
from diffusers.models.autoencoders.autoencoder_kl_ltx2 import AutoencoderKLLTX2Video
from torch import Tensor, nn

CELL = 32
"""Pixels a latent cell is wide and high."""
PACE = 8
"""Frames of a latent cell."""
LATENT_CHANNELS = 96
LATENT_STD = 0.55
"""Standard deviation of the latents of typical clips in [-1, 1]."""

_PATCH = 4
_CONSTANT = 8192.0
"""A power of two: it and its multiples are exact in half precision, too."""
_GROUP = 24
"""Channels that have become one after the encoder's first three steps."""
_FREE = 15
"""A channel before the encoder's last step that no colour needs; it becomes 8 of 128."""
_LINES = 6
"""Channels of the last ones that colours need: the mean of each, and what it changes by from frame to frame."""


def write(vae: AutoencoderKLLTX2Video) -> None:
    for parameter in vae.parameters():
        parameter.zero_()
    _write_encoder(vae.encoder)
    _write_decoder(vae.decoder)
    vae.get_buffer("latents_std").fill_(LATENT_STD)


def _write_encoder(encoder: nn.Module) -> None:
    """Convolutions but the first and the last stay zero: each step passes on means of groups of channels, or all."""
    weight = encoder.get_parameter
    first, last = weight("conv_in.conv.weight"), weight("conv_out.conv.weight")
    for colour in range(3):
        pixels = slice(colour * _PATCH**2, (colour + 1) * _PATCH**2)
        first[colour * _GROUP, pixels, -1, 1, 1] = _GROUP / _PATCH**2
    weight("down_blocks.4.downsamplers.0.conv.conv.bias")[_FREE] = _CONSTANT
    for channel in range(LATENT_CHANNELS):
        last[channel, channel, -1, 1, 1] = _CONSTANT / 2
    weight("conv_out.conv.bias")[LATENT_CHANNELS] = -30.0  # log-variance: as good as none


def _write_decoder(decoder: nn.Module) -> None:
    """Steps write each channel's parts beside each other, earlier before later, then from left to right in rows."""
    weight = decoder.get_parameter
    steps = [weight(f"up_blocks.{index}.upsamplers.0.conv.conv.weight")[:, :, 1] for index in range(5)]
    for channel in range(LATENT_CHANNELS):
        place, half, square = channel // 8, channel // 4 % 2, channel % 4
        weight("conv_in.conv.weight")[channel, channel, 1, 1, 1] = 1
        steps[0][(place * 2 + half) * 4 + square, channel, 1, 1] = 1
    for colour in range(3):
        mean, slope = 2 * colour, 2 * colour + 1
        for place in range(4):  # from halves four frames apart to a line through both
            early, late = ((colour * 4 + place) * 2 + half for half in range(2))
            steps[1][mean * 4 + place, [early, late], 1, 1] = torch.tensor([0.5, 0.5])
            steps[1][slope * 4 + place, [early, late], 1, 1] = torch.tensor([-0.25, 0.25])
        for side, sign in enumerate((-1, 1)):
            for step, distance in ((steps[2], 2.0), (steps[3], 1.0)):
                step[mean * 2 + side, mean, 1, 1] = 1
                step[mean * 2 + side, slope, 1, 1] = sign * distance
                step[slope * 2 + side, slope, 1, 1] = 1
            for place, kernel in enumerate(_bilinear(2)):
                steps[4][(mean * 2 + side) * 4 + place, mean] = kernel
                steps[4][(mean * 2 + side) * 4 + place, slope] = kernel * sign * 0.5
        for place, kernel in enumerate(_bilinear(_PATCH)):
            row, column = divmod(place, _PATCH)  # patches alone are written column by column
            target = (colour * _PATCH + column) * _PATCH + row
            weight("conv_out.conv.weight")[target, mean, 1] = kernel * _CONSTANT
    weight("up_blocks.4.upsamplers.0.conv.conv.bias")[_LINES * 8 :] = _CONSTANT


def _bilinear(times: int) -> Tensor:
    """(times x times, 3, 3): what a cell's neighbours add to each of its parts, row by row."""
    place = (torch.arange(times) + 0.5) / times - 0.5
    taps = torch.stack([(-place).clamp_min(0), 1 - place.abs(), place.clamp_min(0)], dim=1)
    return torch.einsum("ay,bx->abyx", taps, taps).flatten(0, 1)
