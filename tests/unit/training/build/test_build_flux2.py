from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from checkpoint_layout import files, layout, size

from training.build.build_flux2 import FOLDER, TEXT_LAYERS, build, text_encoder
from deployments.families.placement import Placement
from deployments.families.flux2 import Flux2


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rebuilt") / "flux2klein"
    build(folder)
    return folder


def test_training_changes_nothing_but_the_numbers(rebuilt: Path) -> None:
    assert layout(FOLDER) == layout(rebuilt)


def test_it_is_small_enough_for_the_repository() -> None:
    assert size(FOLDER) < 8 * 2**20


def test_other_users_can_read_it(rebuilt: Path) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in files(rebuilt).values())


def test_the_index_names_the_distilled_pipeline_and_no_place() -> None:
    index = json.loads((FOLDER / "model_index.json").read_text())
    assert index["_class_name"] == "Flux2KleinPipeline"
    assert index["is_distilled"] is True
    configurations = [path.read_text() for name, path in files(FOLDER).items() if name.endswith(".json")]
    assert not any(str(FOLDER.parent) in text for text in configurations)


def test_it_loads_from_any_place(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    shutil.copytree(FOLDER, folder)
    assert Flux2.load(folder, Placement(torch.device("cpu"), torch.float32)).transformer.dtype == torch.float32


def test_upper_text_layers_pass_the_first_ones_result_on() -> None:
    model = text_encoder().eval()
    with torch.inference_mode():
        states = model(torch.tensor([[1, 300, 2]]), output_hidden_states=True).hidden_states
    assert states is not None
    assert len(states) == TEXT_LAYERS + 1
    assert not torch.equal(states[0], states[9])
    assert torch.equal(states[9], states[18])
