from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from deployments.bundled.analytic_vae import LATENT_CHANNELS, analytic_vae
from deployments.bundled.build_flux3 import FOLDER, build
from deployments.bundled.words import VOCABULARY, tokenizer


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rebuilt") / "flux3"
    build(folder)
    return folder


def files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def test_building_again_gives_the_committed_bytes(rebuilt: Path) -> None:
    committed, built = files(FOLDER), files(rebuilt)
    assert built.keys() == committed.keys()
    for name, path in built.items():
        assert path.read_bytes() == committed[name].read_bytes(), name


def test_it_is_small_enough_for_the_repository() -> None:
    assert sum(path.stat().st_size for path in files(FOLDER).values()) < 8 * 2**20


def test_the_index_names_no_place_outside_its_folder() -> None:
    index = json.loads((FOLDER / "modular_model_index.json").read_text())
    assert index["_class_name"] == "Flux3DistilledModularPipeline"
    components = [entry[-1] for entry in index.values() if isinstance(entry, list)]
    assert len(components) == 4
    assert all(component["pretrained_model_name_or_path"] is None for component in components)


@pytest.mark.parametrize("text", ["a red circle", "Größe ☀ 日本", "  two  spaces\n", "<tag> {json: 1}"])
def test_any_text_survives_the_tokenizer(text: str) -> None:
    words = tokenizer()
    assert len(words) <= VOCABULARY
    assert words.decode(words(text)["input_ids"]) == text


def test_words_of_the_little_world_are_one_token_each() -> None:
    assert len(tokenizer()(" red circle on a blue background")["input_ids"]) == 6


def test_the_vae_keeps_a_picture_of_soft_colours() -> None:
    vae = analytic_vae().eval()
    corners = torch.rand((1, 3, 3, 3), generator=torch.Generator().manual_seed(0)) * 2 - 1
    picture = F.interpolate(corners, size=(128, 128), mode="bicubic").clamp(-1, 1)
    with torch.inference_mode():
        latents = vae.encode(picture).latent_dist.mode()  # pyright: ignore[reportAttributeAccessIssue]
        decoded = vae.decode(latents).sample  # pyright: ignore[reportAttributeAccessIssue]
    assert latents.shape == (1, LATENT_CHANNELS, 16, 16)
    # The outermost cells see the zero padding, and come out grey.
    inner = slice(16, -16)
    assert (decoded - picture)[..., inner, inner].abs().mean() < 0.05
