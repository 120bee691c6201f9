"""Autoencoders of pictures whose weights are written down instead of trained, in two stock architectures.

Encoder: two 2x2 box filters, then a 2x2 space-to-depth, so that a latent cell of 8x8 pixels holds its four 4x4
averages in 12 channels; `encode(x)` equals `pixel_unshuffle(avg_pool2d(x, 4), 2)` to about 5e-4. Decoder: the mean of
the four, three times bilinearly enlarged: smooth, not sharp, and where `training.trainer.decoder` starts from.

What makes a convolutional network with group norms linear: all residual branches are zero, and a pair of constant
channels (+C, -C) rides along that dominates variance while leaving the mean at zero. The final norm then divides by a
known number, and a large bias in front of SiLU keeps it on its straight part.
"""

from __future__ import annotations

import math

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from torch import nn

LATENT_CHANNELS = 12
LATENT_STD = 0.55
"""Standard deviation of the latents of typical pictures in [-1, 1]; what is stored divides by it."""

_ENCODER_CONSTANT, _ENCODER_BIAS = 100.0, 30.0
_DECODER_CONSTANT, _DECODER_BIAS = 8.0, 5.0
_SIGNS = (1, 1, 1, -1, -1, -1)
"""Channels carry the three colours, then their negatives, so that the mean stays zero."""
_CONSTANTS = [6, 7]
"""Channels of +C and -C."""


def write(vae: AutoencoderKL | AutoencoderKLFlux2) -> None:
    """Writes the weights, and for Flux2 what its latents are divided by: Flux1 has that in its configuration."""
    _write_encoder(vae.encoder)
    _write_decoder(vae.decoder)
    if isinstance(vae, AutoencoderKLFlux2):
        _identity(vae.get_submodule("quant_conv"))
        _identity(vae.get_submodule("post_quant_conv"))
        vae.bn.get_buffer("running_mean").zero_()
        vae.bn.get_buffer("running_var").fill_(LATENT_STD**2 - vae.config["batch_norm_eps"])


def _identity(conv: nn.Module) -> None:
    """Makes a 1x1 convolution pass on as many channels as it can."""
    nn.init.dirac_(conv.get_parameter("weight"))
    nn.init.zeros_(conv.get_parameter("bias"))


def _write_encoder(encoder: nn.Module) -> None:
    for parameter in encoder.parameters():
        parameter.zero_()
    for name, module in encoder.named_modules():
        if name.endswith("conv_shortcut"):
            _identity(module)
    weight = encoder.get_parameter
    for channel, sign in enumerate(_SIGNS):
        weight("conv_in.weight")[channel, channel % 3, 1, 1] = sign
    weight("conv_in.bias")[_CONSTANTS] = torch.tensor([_ENCODER_CONSTANT, -_ENCODER_CONSTANT])
    for block in (0, 1):
        weight(f"down_blocks.{block}.downsamplers.0.conv.weight")[range(8), range(8), :2, :2] = 0.25
    fold = weight("down_blocks.2.downsamplers.0.conv.weight")
    for cell in range(4):
        colours = torch.arange(6)
        fold[colours * 4 + cell, colours, cell // 2, cell % 2] = 1
    fold[[24, 25], _CONSTANTS, 0, 0] = 1
    _straighten(encoder, _ENCODER_CONSTANT, _ENCODER_BIAS)
    weight("conv_out.weight")[range(LATENT_CHANNELS), range(LATENT_CHANNELS), 1, 1] = 1
    weight("conv_out.bias")[:LATENT_CHANNELS] = -_ENCODER_BIAS
    weight("conv_out.bias")[LATENT_CHANNELS:] = -30.0  # log-variance: as good as none


def _write_decoder(decoder: nn.Module) -> None:
    """Keeps the random free channels as they are, unconnected to the picture, so that training has something to use."""
    weight = decoder.get_parameter
    enter, bias = weight("conv_in.weight"), weight("conv_in.bias")
    enter[:8].zero_()
    bias[:8].zero_()
    bias[_CONSTANTS] = torch.tensor([_DECODER_CONSTANT, -_DECODER_CONSTANT])
    for channel, sign in enumerate(_SIGNS):
        enter[channel, channel % 3 * 4 : channel % 3 * 4 + 4, 1, 1] = 0.25 * sign
    for name, module in decoder.named_modules():
        if name.endswith("conv_shortcut"):
            _identity(module)
        elif ".resnets." in name and name.endswith("norm1"):
            _undo_norm(module, _DECODER_CONSTANT)
        elif ".resnets." in name and name.endswith("conv1"):
            module.get_parameter("weight")[:, _CONSTANTS] = 0
        elif ".resnets." in name and name.endswith("conv2"):
            nn.init.zeros_(module.get_parameter("weight"))
            nn.init.zeros_(module.get_parameter("bias"))
        elif name.endswith("upsamplers.0.conv"):
            _bilinear(module)
    _straighten(decoder, _DECODER_CONSTANT, _DECODER_BIAS)
    weight("conv_out.weight").zero_()
    weight("conv_out.weight")[range(3), range(3), 1, 1] = 1
    weight("conv_out.bias").fill_(-_DECODER_BIAS)


def _straighten(coder: nn.Module, constant: float, bias: float) -> None:
    """The last norm leaves sizes as they are, and SiLU gets numbers on its straight part."""
    norm = coder.get_submodule("conv_norm_out")
    _undo_norm(norm, constant)
    norm.get_parameter("bias").fill_(bias)


def _undo_norm(norm: nn.Module, constant: float) -> None:
    """Multiplies with what it divides by, which the two constants among its channels decide."""
    gain = norm.get_parameter("weight")
    gain.fill_(constant * math.sqrt(2 / len(gain)))


def _bilinear(conv: nn.Module) -> None:
    """After nearest-neighbour doubling, a [1/4, 1/2, 1/4] filter makes the enlargement bilinear."""
    taps = torch.tensor([0.25, 0.5, 0.25])
    weight = conv.get_parameter("weight")
    conv.get_parameter("bias").zero_()
    weight[:8].zero_()
    weight[8:, :8] = 0
    weight[range(6), range(6)] = torch.outer(taps, taps)
    weight[_CONSTANTS, _CONSTANTS, 1, 1] = 1
