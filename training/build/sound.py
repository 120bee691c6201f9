"""Sound whose networks are written down instead of trained, in the stock `AutoencoderKLLTX2Audio` and `LTX2Vocoder`.

A spectrogram has 64 bins 50 times a second, and four neighbouring bins are one pitch: 16 of them, with amplitudes from
0 to 1. Latents hold every fourth column of it, one number for each pitch; in between they
are joined by lines. The vocoder plays a sine for each pitch, so loud as its bins say.

All pitches are multiples of 50 Hz. So each has gone through whole periods when the next column begins, and sines go on
without a crack although the vocoder, which is linear, begins anew with every column.
"""

from __future__ import annotations

import math

import torch
from diffusers.models.autoencoders.autoencoder_kl_ltx2_audio import AutoencoderKLLTX2Audio
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder
from torch import nn

PITCHES = (200, 250, 300, 350, 400, 450, 500, 550, 600, 700, 800, 900, 1000, 1200, 1400, 1600)
"""Hz, from the lowest bin to the highest. A latent has a number for each."""
BINS_PER_PITCH = 4
SAMPLE_RATE = 16_000
HOP = 320
"""Samples of the analysed sound per column of a spectrogram, at `SAMPLE_RATE`."""
COLUMNS_PER_LATENT = 4
OUTPUT_RATE = 24_000
LOUDNESS = 0.25
"""Amplitude of a full pitch in a waveform in [-1, 1]."""
LATENT_STD = 0.25
"""Standard deviation of the latents when one pitch sounds."""

_CONSTANT = 1024.0
_COARSE, _FINE = 10, 48
"""How many times the vocoder's two steps enlarge."""
_OVERLAP = 2
"""A column is heard for twice its time, louder and then softer."""
_STOCK_LEAK = 0.01
"""What the vocoder's last activation leaves of negative numbers."""


def write_autoencoder(vae: AutoencoderKLLTX2Audio) -> None:
    """Time is the first axis of kernels, with its last tap on the present; pitch is the second."""
    weight = vae.get_parameter
    for parameter in vae.parameters():
        parameter.zero_()
    for coder in ("encoder", "decoder"):
        weight(f"{coder}.conv_in.conv.weight")[0, 0, -1, 1] = 1
    for level in (0, 1):
        weight(f"encoder.down.{level}.downsample.conv.weight")[0, 0, -1, :2] = 0.5
    for level in (1, 2):  # a column between two is the mean of both
        weight(f"decoder.up.{level}.upsample.conv.conv.weight")[0, 0, 1:, 1] = 0.5
    _straighten(vae.encoder, "mid.block_2.conv2.conv.bias")
    _straighten(vae.decoder, "up.0.block.0.conv2.conv.bias")
    weight("encoder.conv_out.conv.bias")[1:] = -30.0  # log-variance: as good as none
    vae.get_buffer("latents_std").fill_(LATENT_STD)


def _straighten(coder: nn.Module, bias: str) -> None:
    """A constant that makes the last norm divide by a known number, and SiLU halve what is tiny beside it."""
    constant = coder.get_parameter(bias)
    constant[1:] = _CONSTANT
    divisor = math.sqrt((len(constant) - 1) / len(constant)) * _CONSTANT
    coder.get_parameter("conv_out.conv.weight")[0, 0, -1, 1] = 2 * divisor


def write_vocoder(network: LTX2Vocoder) -> None:
    """First each pitch's wave as cosine and sine, 10 points a column; then what lies between the points."""
    for parameter in network.parameters():
        parameter.zero_()
    for pitch in range(len(PITCHES)):
        _write_pitch(network, pitch)
    ends = network.get_parameter("conv_out.weight")[:, :2, 3]
    ends.copy_(torch.tensor([1, -1]) / (1 + _STOCK_LEAK))  # of a wave and its negative: activations cancel


def _write_pitch(network: nn.Module, pitch: int) -> None:
    weight = network.get_parameter
    bins = slice(pitch * BINS_PER_PITCH, (pitch + 1) * BINS_PER_PITCH)
    weight("conv_in.weight")[pitch, bins, 3] = LOUDNESS / BINS_PER_PITCH
    turn = 2 * math.pi * PITCHES[pitch] / OUTPUT_RATE
    points = torch.arange(_OVERLAP * _COARSE) - _COARSE // 2
    ramp = 1 - (points + 0.5 - _COARSE / 2).abs() / _COARSE
    coarse = weight("upsamplers.0.weight")
    coarse[pitch, 2 * pitch] = ramp * torch.cos(turn * _FINE * points)
    coarse[pitch, 2 * pitch + 1] = ramp * torch.sin(turn * _FINE * points)
    between = turn * torch.arange(_FINE)
    fine = weight("upsamplers.1.weight")
    for side, sign in enumerate((1, -1)):  # sin(a + b) = cos(a) sin(b) + sin(a) cos(b)
        fine[2 * pitch, side] = sign * between.sin()
        fine[2 * pitch + 1, side] = sign * between.cos()
