from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from deployments.checkpoint_files import CheckpointError, fingerprint, local_folder, pipeline_folder, single_file
from deployments.contract.checkpoint import BUNDLED


def test_a_bundled_name_is_a_folder_of_the_package() -> None:
    assert local_folder("bundled/flux3") == BUNDLED / "flux3"
    assert pipeline_folder("bundled/flux3") == (BUNDLED / "flux3", True)


def test_an_existing_folder_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert local_folder("mine") == tmp_path / "mine"
    assert pipeline_folder(str(tmp_path / "mine")) == (tmp_path / "mine", True)


def test_any_other_name_is_not_here() -> None:
    assert local_folder("owner/name") is None


@pytest.mark.parametrize("name", ["no such name", "no/such/name"])
def test_a_name_that_is_neither_folder_nor_repository_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="no folder here"):
        pipeline_folder(name)
    with pytest.raises(CheckpointError, match="no folder here"):
        single_file(name, "config.json")


def test_an_unknown_bundled_name_lists_those_there_are() -> None:
    with pytest.raises(CheckpointError, match="bundled/flux3"):
        pipeline_folder("bundled/nothing")


def test_a_single_file_lies_in_its_folder() -> None:
    assert single_file("bundled/flux3", "transformer/config.json") == BUNDLED / "flux3" / "transformer" / "config.json"


def test_the_fingerprint_of_weights_is_that_of_their_content(tmp_path: Path) -> None:
    def stored(name: str, weights: torch.Tensor) -> Path:
        (tmp_path / name / "text_encoder").mkdir(parents=True)
        save_file({"w": weights}, tmp_path / name / "text_encoder" / "model.safetensors")
        return tmp_path / name

    random = torch.rand(50_000)
    other = random.clone()
    other[:25_000] += 0.5  # as a training would: everywhere in what it touches
    same = [fingerprint(stored(name, random), ["text_encoder"]) for name in ("one", "again")]
    assert same[0] == same[1]
    assert fingerprint(stored("other", other), ["text_encoder"]) != same[0]
    assert fingerprint(stored("longer", torch.cat([random, random[:9]])), ["text_encoder"]) != same[0]
