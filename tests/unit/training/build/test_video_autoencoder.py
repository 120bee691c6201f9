from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from diffusers.models.autoencoders.autoencoder_kl_ltx2 import AutoencoderKLLTX2Video
from torch import Tensor

from training.build.checkpoints import component
from training.build.video_autoencoder import LATENT_CHANNELS, LATENT_STD
from training.worlds.clips.drawing import frames, latents
from training.worlds.clips.scene import Scene

SCENES = [
    Scene("circle", "red", "white", "right"),
    Scene("square", "yellow", "blue", "up"),
    Scene("triangle", "green", "black", "grow", "large"),
    Scene("ring", "purple", "orange", "still"),
]


@pytest.fixture(scope="module")
def vae() -> AutoencoderKLLTX2Video:
    return component("ltx2", "vae").requires_grad_(False)


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def encoded(vae: AutoencoderKLLTX2Video, clip: Tensor) -> Tensor:
    return vae.encode(clip).latent_dist.mode()  # type: ignore[union-attr]


def decoded(vae: AutoencoderKLLTX2Video, latent: Tensor) -> Tensor:
    return vae.decode(latent, return_dict=False)[0]


def test_latents_are_averages(vae: AutoencoderKLLTX2Video) -> None:
    clip = torch.rand(1, 3, 9, 64, 96) * 2 - 1
    latent = encoded(vae, clip)
    assert latent.shape == (1, LATENT_CHANNELS, 2, 2, 3)
    boxes = F.avg_pool3d(clip[:, :, 1:], (4, 8, 8))
    blue, row, column, half, square_row, square_column = 2, 1, 0, 1, 0, 1
    channel = ((blue * 2 + row) * 2 + column) * 8 + half * 4 + square_row * 2 + square_column
    told = boxes[0, blue, half, square_row * 2 + row :: 4, square_column * 2 + column :: 4]
    assert torch.allclose(latent[0, channel, 1], told, atol=1e-5)


@pytest.mark.parametrize("scene", SCENES)
def test_clips_come_back(vae: AutoencoderKLLTX2Video, scene: Scene) -> None:
    clip = frames(scene, (4, 7), 25).transpose(0, 1)[None]
    back = decoded(vae, encoded(vae, clip))
    assert back.shape == clip.shape
    assert -10 * torch.log10((back - clip).square().mean() / 4) > 25


def test_a_picture_is_the_first_frame_of_a_clip(vae: AutoencoderKLLTX2Video) -> None:
    clip = frames(SCENES[0], (4, 5), 17).transpose(0, 1)[None]
    latent = encoded(vae, clip)
    assert torch.allclose(encoded(vae, clip[:, :, :1]), latent[:, :, :1], atol=1e-5)
    assert torch.allclose(decoded(vae, latent[:, :, :1]), decoded(vae, latent)[:, :, :1], atol=1e-5)


def test_decoding_in_pieces_changes_nothing(vae: AutoencoderKLLTX2Video) -> None:
    latent = torch.randn(1, LATENT_CHANNELS, 6, 2, 2)
    pieces = [decoded(vae, latent[:, :, :4]), decoded(vae, latent[:, :, 3:])[:, :, -16:]]
    assert torch.allclose(torch.cat(pieces, dim=2), decoded(vae, latent), atol=1e-6)


def test_half_precision_storage_changes_nothing(vae: AutoencoderKLLTX2Video) -> None:
    stored = component("ltx2", "vae").half().float()
    latent = torch.randn(1, LATENT_CHANNELS, 2, 2, 2)
    assert torch.equal(decoded(stored, latent), decoded(vae, latent))
    clip = torch.rand(1, 3, 9, 64, 64)
    assert torch.equal(encoded(stored, clip), encoded(vae, clip))


@pytest.mark.parametrize("grid", [(4, 7), (9, 4)])
def test_drawn_latents_are_those_of_drawn_frames(vae: AutoencoderKLLTX2Video, grid: tuple[int, int]) -> None:
    drawn, covered = latents(SCENES, grid, 25)
    for scene, latent in zip(SCENES, drawn, strict=True):
        real = encoded(vae, frames(scene, grid, 25).transpose(0, 1)[None])[0] / LATENT_STD
        assert (latent - real).square().mean().sqrt() < 0.02
    assert covered.shape == (len(SCENES), 4, *grid)
    assert 0 < covered.mean() < 0.3
