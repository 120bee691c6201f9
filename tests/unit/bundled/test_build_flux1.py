from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from deployments.bundled.analytic_vae import LATENT_CHANNELS, analytic_kl_vae
from deployments.bundled.build_flux1 import KINDS, Kind, build
from deployments.bundled.clip_t5 import clip_tokenizer, t5_tokenizer
from deployments.bundled.folders import CHECKPOINTS
from deployments.bundled.words import VOCABULARY


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rebuilt")
    build(folder)
    return folder


def files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", KINDS)
def test_building_again_gives_the_committed_bytes(rebuilt: Path, name: str) -> None:
    committed, built = files(CHECKPOINTS / name), files(rebuilt / name)
    assert built.keys() == committed.keys()
    for file, path in built.items():
        assert path.read_bytes() == committed[file].read_bytes(), file


@pytest.mark.parametrize("name", KINDS)
def test_each_is_small_enough_for_the_repository(name: str) -> None:
    assert sum(path.stat().st_size for path in files(CHECKPOINTS / name).values()) < 6 * 2**20


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_index_names_the_pipeline_and_no_place(name: str, kind: Kind) -> None:
    index = json.loads((CHECKPOINTS / name / "model_index.json").read_text())
    assert index["_class_name"] == kind.pipeline.__name__
    assert "_name_or_path" not in index


def test_building_leaves_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_words_of_the_little_world_are_one_token_each() -> None:
    for tokenizer, marks in ((clip_tokenizer(), 2), (t5_tokenizer(), 1)):
        assert len(tokenizer) <= VOCABULARY
        assert len(tokenizer("red circle on a blue background")["input_ids"]) == 6 + marks


def test_clip_has_tokens_for_any_text() -> None:
    tokenizer = clip_tokenizer()
    ids = tokenizer("Größe ☀ 日本 <tag>", add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in ids


def test_the_vae_keeps_a_picture_of_soft_colours() -> None:
    vae = analytic_kl_vae().eval()
    corners = torch.rand((1, 3, 3, 3), generator=torch.Generator().manual_seed(0)) * 2 - 1
    picture = F.interpolate(corners, size=(128, 128), mode="bicubic").clamp(-1, 1)
    with torch.inference_mode():
        latents = vae.encode(picture).latent_dist.mode()  # pyright: ignore[reportAttributeAccessIssue]
        decoded = vae.decode(latents).sample  # pyright: ignore[reportAttributeAccessIssue]
    assert latents.shape == (1, LATENT_CHANNELS, 16, 16)
    # The outermost cells see the zero padding, and come out grey.
    inner = slice(16, -16)
    assert (decoded - picture)[..., inner, inner].abs().mean() < 0.05
