"""Autoencoders whose weights are written down instead of trained, in the stock `AutoencoderKLFlux2` architecture and,
for Flux1, in that of `AutoencoderKL`.

Encoder: two 2x2 box filters, then a 2x2 space-to-depth, so that a latent cell of 8x8 pixels holds its four 4x4
averages in 12 channels; `encode(x)` equals `pixel_unshuffle(avg_pool2d(x, 4), 2)` to about 5e-4. Decoder: the mean of
the four, three times bilinearly enlarged: smooth, not sharp, and where `training.decoder` starts from.

What makes a convolutional network with group norms linear: all residual branches are zero, and a pair of constant
channels (+C, -C) rides along that dominates variance while leaving the mean at zero. The final norm then divides by a
known number, and a large bias in front of SiLU keeps it on its straight part.
"""

from __future__ import annotations

import math

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from torch import Tensor, nn

LATENT_CHANNELS = 12
LATENT_STD = 0.55
"""Standard deviation of the latents of typical pictures in [-1, 1]; the stored batch norm divides by it."""

_ENCODER_CONSTANT, _ENCODER_BIAS = 100.0, 30.0
_DECODER_CONSTANT, _DECODER_BIAS = 8.0, 5.0
_PLUS, _MINUS = 6, 7
"""Channels of the constants; 0 to 2 carry the colours, 3 to 5 their negatives, so that the mean stays zero."""


WIDTHS = (16, 16, 48, 48)
"""Of both decoders, from fine to coarse: one training serves both. 25 to 30 ms for 128 x 128 pixels on a core."""
_NARROWEST = (8, 8, 32, 32)
"""Of an encoder: colours, their negatives and constants; from the third on these for each of the four cells."""


def analytic_vae(widths: tuple[int, ...] = WIDTHS) -> AutoencoderKLFlux2:
    """Downscales 8 times. Encoder and decoder differ in their widths here, so the encoder stays as small as it can."""
    vae = AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=_NARROWEST,
        decoder_block_out_channels=widths,
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=1,
        mid_block_add_attention=False,
        sample_size=512,
    )
    with torch.no_grad():
        _write_encoder(vae.encoder)
        _write_decoder(vae.decoder)
        _identity(vae.get_submodule("quant_conv"))
        _identity(vae.get_submodule("post_quant_conv"))
        vae.bn.get_buffer("running_mean").zero_()
        vae.bn.get_buffer("running_var").fill_(LATENT_STD**2 - vae.config["batch_norm_eps"])
    return vae


def analytic_kl_vae(widths: tuple[int, ...] = WIDTHS) -> AutoencoderKL:
    """The same for Flux1: latents are scaled by two numbers of its configuration instead of a batch norm.

    Its encoder is as wide as its decoder; what it does not need of that is zero.
    """
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,  # type: ignore[arg-type]  # annotated as a single one
        up_block_types=("UpDecoderBlock2D",) * 4,  # type: ignore[arg-type]
        block_out_channels=widths,  # type: ignore[arg-type]
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=1,
        mid_block_add_attention=False,
        sample_size=512,
        scaling_factor=1 / LATENT_STD,
        shift_factor=0.0,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    with torch.no_grad():
        _write_encoder(vae.encoder)
        _write_decoder(vae.decoder)
    return vae


def _identity(conv: nn.Module) -> None:
    """Makes a 1x1 convolution pass on as many channels as it can."""
    weight: Tensor = conv.get_parameter("weight")
    weight.zero_()
    conv.get_parameter("bias").zero_()
    for channel in range(min(weight.shape[:2])):
        weight[channel, channel, 0, 0] = 1


def _write_encoder(encoder: nn.Module) -> None:
    for parameter in encoder.parameters():
        parameter.zero_()
    for name, module in encoder.named_modules():
        if name.endswith("conv_shortcut"):
            _identity(module)
    weight = encoder.get_parameter
    for colour in range(3):
        weight("conv_in.weight")[colour, colour, 1, 1] = 1
        weight("conv_in.weight")[3 + colour, colour, 1, 1] = -1
    weight("conv_in.bias")[_PLUS] = _ENCODER_CONSTANT
    weight("conv_in.bias")[_MINUS] = -_ENCODER_CONSTANT
    for block in (0, 1):
        box = weight(f"down_blocks.{block}.downsamplers.0.conv.weight")
        for channel in range(8):
            box[channel, channel, :2, :2] = 0.25
    fold = weight("down_blocks.2.downsamplers.0.conv.weight")
    for colour in range(3):
        for cell in range(4):
            fold[colour * 4 + cell, colour, cell // 2, cell % 2] = 1
            fold[12 + colour * 4 + cell, 3 + colour, cell // 2, cell % 2] = 1
    fold[24, _PLUS, 0, 0] = 1
    fold[25, _MINUS, 0, 0] = 1
    last = weight("conv_norm_out.weight")
    last.fill_(_ENCODER_CONSTANT * math.sqrt(2 / last.shape[0]))
    weight("conv_norm_out.bias").fill_(_ENCODER_BIAS)
    for channel in range(LATENT_CHANNELS):
        weight("conv_out.weight")[channel, channel, 1, 1] = 1
        weight("conv_out.bias")[channel] = -_ENCODER_BIAS
    weight("conv_out.bias")[LATENT_CHANNELS:] = -30.0  # log-variance: as good as none


def _write_decoder(decoder: nn.Module) -> None:
    """Keeps the random free channels as they are, unconnected to the picture, so that training has something to use."""
    weight = decoder.get_parameter
    enter, bias = weight("conv_in.weight"), weight("conv_in.bias")
    enter[:8].zero_()
    bias[:8].zero_()
    bias[_PLUS], bias[_MINUS] = _DECODER_CONSTANT, -_DECODER_CONSTANT
    for colour in range(3):
        enter[colour, colour * 4 : colour * 4 + 4, 1, 1] = 0.25
        enter[3 + colour, colour * 4 : colour * 4 + 4, 1, 1] = -0.25
    for name, module in decoder.named_modules():
        if name.endswith("conv_shortcut"):
            _identity(module)
        elif ".resnets." in name and name.endswith("norm1"):
            gain = module.get_parameter("weight")
            gain.fill_(_DECODER_CONSTANT * math.sqrt(2 / gain.shape[0]))
        elif ".resnets." in name and name.endswith("conv1"):
            module.get_parameter("weight")[:, _PLUS : _MINUS + 1] = 0
        elif ".resnets." in name and name.endswith("conv2"):
            module.get_parameter("weight").zero_()
            module.get_parameter("bias").zero_()
        elif name.endswith("upsamplers.0.conv"):
            _bilinear(module)
    last = weight("conv_norm_out.weight")
    last.fill_(_DECODER_CONSTANT * math.sqrt(2 / last.shape[0]))
    weight("conv_norm_out.bias").fill_(_DECODER_BIAS)
    weight("conv_out.weight").zero_()
    for colour in range(3):
        weight("conv_out.weight")[colour, colour, 1, 1] = 1
        weight("conv_out.bias")[colour] = -_DECODER_BIAS


def _bilinear(conv: nn.Module) -> None:
    """After nearest-neighbour doubling, a [1/4, 1/2, 1/4] filter makes the enlargement bilinear."""
    taps = torch.tensor([0.25, 0.5, 0.25])
    weight = conv.get_parameter("weight")
    conv.get_parameter("bias").zero_()
    weight[:8].zero_()
    weight[8:, :8] = 0
    for channel in range(6):
        weight[channel, channel] = torch.outer(taps, taps)
    for channel in (_PLUS, _MINUS):
        weight[channel, channel, 1, 1] = 1
