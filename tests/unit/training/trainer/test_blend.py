from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.trainer.blend import blend, main

HALF = torch.float16


def checkpoint(folder: Path, **parts: Tensor) -> Path:
    """Of components with one tensor each."""
    for part, weight in parts.items():
        (folder / part).mkdir(parents=True)
        save_file({"weight": weight}, folder / part / "model.safetensors")
    return folder


def weight(checkpoint: Path, part: str) -> Tensor:
    return load_file(checkpoint / part / "model.safetensors")["weight"]


def test_every_component_keeps_a_share_of_what_it_learnt(tmp_path: Path) -> None:
    before = checkpoint(tmp_path / "before", text_encoder=torch.zeros(2, dtype=HALF), transformer=torch.ones(3))
    learnt = checkpoint(tmp_path / "learnt", text_encoder=torch.ones(2, dtype=HALF), transformer=torch.full((3,), 5.0))
    blend(learnt, before, 0.75)
    assert torch.equal(weight(learnt, "text_encoder"), torch.full((2,), 0.75, dtype=HALF))
    assert torch.equal(weight(learnt, "transformer"), torch.full((3,), 4.0))
    files = {file.name: file.stat().st_mode & 0o777 for file in learnt.rglob("*") if file.is_file()}
    assert files == {"model.safetensors": 0o644}


def test_where_one_component_has_other_weights_none_is_written(tmp_path: Path) -> None:
    before = checkpoint(tmp_path / "before", text_encoder=torch.zeros(2), transformer=torch.ones(3))
    learnt = checkpoint(tmp_path / "learnt", text_encoder=torch.ones(2), transformer=torch.ones(4))
    with pytest.raises(ValueError, match="other weights"):
        blend(learnt, before, 0.5)
    assert torch.equal(weight(learnt, "text_encoder"), torch.ones(2))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["kontext", ".", "--share", "1.5"], "not between 0 and 1"),
        (["kontext", ".", "--share", "0.5"], "no checkpoint"),
    ],
)
def test_what_can_not_be_blended_is_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert reason in capsys.readouterr().err
