from __future__ import annotations

from pathlib import Path

import pytest

from deployments.checkpoint_files import CheckpointError, local_folder, pipeline_folder, single_file
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
