from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_ltx2 import AutoencoderKLLTX2Video
from diffusers.models.transformers.transformer_ltx2 import LTX2VideoTransformer3DModel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deployments.contract.job import FPS
from deployments.contract.model import BUNDLED
from deployments.families import ltx2_latents
from deployments.families.canvas import ClipShape, Scale, shape_of
from deployments.families.ltx2_latents import ClipPictures
from deployments.images import Pixels


@pytest.fixture(scope="module")
def pictures() -> ClipPictures:
    folder = str(BUNDLED / "ltx2")
    vae = AutoencoderKLLTX2Video.from_pretrained(folder, subfolder="vae", torch_dtype=torch.float32)
    transformer = LTX2VideoTransformer3DModel.from_pretrained(
        folder, subfolder="transformer", torch_dtype=torch.float32
    )
    return ClipPictures(vae, transformer, torch.device("cpu"))


def a_shape(pictures: ClipPictures, lead: int, frames: int, width: int = 96, height: int = 64) -> ClipShape:
    return shape_of(
        width, height, lead=lead, frames=frames, scale=Scale(pictures.space, pictures.time, 12.5), render_side=None
    )


def waves(frames: int, width: int = 96, height: int = 64) -> Pixels:
    """Smooth, and another at each moment and place."""
    t, y, x = (axis.astype(float) for axis in np.ogrid[:frames, :height, :width])
    red = np.sin((x + 3 * t) / 15) * np.cos(y / 20)
    green = np.cos((x - 2 * t) / 25 + y / 40)
    blue = np.sin(t / 8 + y / 30 + x / 50)
    return (127.5 + 120 * np.stack(np.broadcast_arrays(red, green, blue), axis=-1)).astype(np.uint8)


def given_tokens(pictures: ClipPictures, shape: ClipShape, frames: Pixels) -> Tensor:
    """The tokens of a clip all of whose frames are known."""
    with torch.inference_mode():
        stream = pictures.stream(shape, frames, [])
    assert (stream.known == 1).all()
    return stream.x


def psnr(one: Pixels, other: Pixels) -> float:
    error = np.square(one.astype(float) - other).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def test_tokens_are_latents_and_back(pictures: ClipPictures) -> None:
    shape = a_shape(pictures, 0, 25)
    latents = torch.randn(1, pictures.channels, *shape.grid)
    tokens = pictures.tokens(latents)
    assert tokens.shape == (1, shape.tokens, pictures.channels)
    assert torch.allclose(pictures.latents(shape, tokens), latents, atol=1e-5)
    behind = torch.cat([tokens, torch.randn(1, 7, pictures.channels)], dim=1)
    assert torch.equal(pictures.latents(shape, behind), pictures.latents(shape, tokens))


@pytest.mark.parametrize("chunk", [1, 3, 8])
@pytest.mark.parametrize(("lead", "frames"), [(0, 1), (0, 40), (9, 33)])
def test_chunks_give_the_frames_of_decoding_all_at_once(
    pictures: ClipPictures, monkeypatch: pytest.MonkeyPatch, lead: int, frames: int, chunk: int
) -> None:
    shape = a_shape(pictures, lead, frames)
    whole_shape = a_shape(pictures, 0, shape.decoded_frames)
    tokens = given_tokens(pictures, whole_shape, waves(shape.decoded_frames))
    monkeypatch.setattr(ltx2_latents, "_MOST_LATENTS", whole_shape.latents)
    [whole] = pictures.decoded(whole_shape, tokens)
    monkeypatch.setattr(ltx2_latents, "_MOST_LATENTS", chunk)
    parts = list(pictures.decoded(shape, tokens))
    assert len(parts) == pictures.chunks(shape)
    assert all(len(part) for part in parts)
    assert len(np.concatenate(parts)) == frames
    assert np.array_equal(np.concatenate(parts), whole[lead : lead + frames])


@settings(max_examples=200)
@given(
    lead=st.integers(-1, 3),
    frames=st.integers(1, 500),
    width=st.integers(64, 2500),
    height=st.integers(64, 2500),
)
def test_no_chunk_is_larger_than_the_decoder_has_room_for(
    pictures: ClipPictures, lead: int, frames: int, width: int, height: int
) -> None:
    shape = a_shape(pictures, 1 + lead * pictures.time if lead >= 0 else 0, frames, width, height)
    chunks = pictures.chunks(shape)
    latents = -(-(shape.latents - shape.lead_latents) // chunks)
    rows, columns = shape.canvas.size
    assert latents == 1 or latents * pictures.time * rows * columns <= 32 * 1280 * 704


def test_the_middle_of_a_larger_canvas_is_seen(pictures: ClipPictures) -> None:
    full, cut = a_shape(pictures, 0, 9), a_shape(pictures, 0, 9, width=70, height=50)
    tokens = given_tokens(pictures, full, waves(9))
    assert cut.grid == full.grid
    [seen], [whole] = pictures.decoded(cut, tokens), pictures.decoded(full, tokens)
    assert seen.shape == (9, 50, 70, 3)
    assert np.array_equal(seen, whole[:, 7:57, 13:83])
    with torch.inference_mode():
        assert np.array_equal(pictures.still(cut, tokens), seen[0])


@pytest.mark.parametrize("lead", [0, 1, 9])
def test_a_still_is_the_first_new_frame(pictures: ClipPictures, lead: int) -> None:
    shape = a_shape(pictures, lead, 16)
    tokens = given_tokens(pictures, a_shape(pictures, 0, shape.decoded_frames), waves(shape.decoded_frames))
    with torch.inference_mode():
        still = pictures.still(shape, tokens)
    assert np.array_equal(still, next(iter(pictures.decoded(shape, tokens)))[0])


def test_of_a_lead_whole_latents_are_known(pictures: ClipPictures) -> None:
    shape = a_shape(pictures, 9, 16)
    with torch.inference_mode():
        stream = pictures.stream(shape, waves(9), [])
    area = shape.grid[1] * shape.grid[2]
    assert stream.known[0, :, 0].tolist() == [1.0] * (2 * area) + [0.0] * (shape.tokens - 2 * area)
    assert torch.equal(stream.x, stream.given)
    assert (stream.x[:, 2 * area :] == 0).all()


def test_a_keyframe_at_the_beginning_is_the_first_latent(pictures: ClipPictures) -> None:
    shape, [picture] = a_shape(pictures, 0, 25), waves(1)
    with torch.inference_mode():
        stream = pictures.stream(shape, None, [(0.0, picture)])
    area = shape.grid[1] * shape.grid[2]
    assert stream.x.shape[1] == shape.tokens
    assert stream.known.sum() == area
    seen = next(iter(pictures.decoded(shape, stream.x)))[0]
    assert psnr(seen, picture) > 25


@pytest.mark.parametrize(("lead", "seconds", "frame"), [(0, 0.5, 12), (0, 20.0, 24), (9, 0.0, 9)])
def test_a_later_keyframe_lies_behind_the_clip_at_its_own_moment(
    pictures: ClipPictures, lead: int, seconds: float, frame: int
) -> None:
    """Not later than the last frame, and counted from the first new one."""
    shape, [picture] = a_shape(pictures, lead, 25), waves(1)
    with torch.inference_mode():
        stream = pictures.stream(shape, waves(lead) if lead else None, [(seconds, picture)])
    area = shape.grid[1] * shape.grid[2]
    assert stream.x.shape[1] == stream.known.shape[1] == stream.places.shape[2] == shape.tokens + area
    assert (stream.known[:, -area:] == 1).all()
    begin, end = stream.places[0, 0, -area:].unbind(-1)
    assert torch.allclose(begin, torch.tensor(frame / FPS))
    assert torch.allclose(end, torch.tensor((frame + 1) / FPS))
    assert torch.equal(stream.places[:, 1:, -area:], stream.places[:, 1:, :area])
    with torch.inference_mode():
        alone = pictures.stream(a_shape(pictures, 0, 1), None, [(0.0, picture)])
    assert torch.equal(stream.x[:, -area:], alone.x)


@pytest.mark.parametrize("size", [(192, 64), (96, 200), (40, 30)])
def test_pictures_of_any_size_cover_the_canvas(pictures: ClipPictures, size: tuple[int, int]) -> None:
    """The middle is in the middle, and nothing is stretched."""
    width, height = size
    y, x = np.ogrid[:height, :width]
    radius = min(width / 96, height / 64) * 20
    disc = (x - (width - 1) / 2) ** 2 + (y - (height - 1) / 2) ** 2 < radius**2
    picture = np.where(disc, 255, 0).astype(np.uint8)[..., None].repeat(3, axis=-1)
    shape = a_shape(pictures, 0, 1)
    seen = next(pictures.decoded(shape, given_tokens(pictures, shape, picture[None])))[0, ..., 0] > 127
    rows, columns = np.nonzero(seen)
    assert abs(rows.mean() - 31.5) < 1.5
    assert abs(columns.mean() - 47.5) < 1.5
    assert abs(np.ptp(rows) - 40) <= 4
    assert abs(np.ptp(columns) - 40) <= 4


def test_a_decoder_in_half_precision_gives_whole_bytes(pictures: ClipPictures, monkeypatch: pytest.MonkeyPatch) -> None:
    vae: Any = AutoencoderKLLTX2Video.from_pretrained(
        str(BUNDLED / "ltx2"), subfolder="vae", torch_dtype=torch.bfloat16
    )
    monkeypatch.setattr(pictures, "_vae", vae)
    shape = a_shape(pictures, 0, 9)
    tokens = given_tokens(pictures, shape, waves(9))
    assert tokens.dtype == torch.float32
    [seen] = pictures.decoded(shape, tokens)
    assert seen.dtype == np.uint8
    assert psnr(seen, waves(9)) > 20
