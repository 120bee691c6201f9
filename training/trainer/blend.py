"""Takes a checkpoint's weights a part of the way back to those of before its further course.

    python -m training.trainer.blend kontext BEFORE --share 0.7

`BEFORE` is the folder of the bundled checkpoints in a tree of before, as `git worktree` makes one. Most of what the
course taught stays, and of what it cost older lessons more comes back (Wortsman et al., "Robust fine-tuning of
zero-shot models", 2022). How much of either, grading says.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.build.bundle import CHECKPOINTS, replace_weights


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("checkpoint", choices=sorted(folder.name for folder in CHECKPOINTS.iterdir()))
    option("before", type=Path, metavar="BEFORE")
    option("--share", type=float, required=True, help="of what was learnt, in (0, 1)")
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.share < 1:
        parser.error(f"--share: {chosen.share} is not between 0 and 1")
    if not (chosen.before / chosen.checkpoint).is_dir():
        parser.error(f"{chosen.before} has no checkpoint of that name: {chosen.checkpoint}")
    blend(CHECKPOINTS / chosen.checkpoint, chosen.before / chosen.checkpoint, chosen.share)


def blend(checkpoint: Path, before: Path, share: float) -> None:
    """Writes over the weights of `checkpoint`. Raises ValueError where `before` has others, and has written none."""
    blended = {
        file: _between(load_file(before / file.relative_to(checkpoint)), load_file(file), share)
        for file in sorted(checkpoint.rglob("*.safetensors"))
    }
    for file, weights in blended.items():
        replace_weights(file.parent, partial(_save, weights, file.name))


def _save(weights: dict[str, Tensor], name: str, component: str) -> None:
    save_file(weights, Path(component) / name, {"format": "pt"})


def _between(before: Mapping[str, Tensor], learnt: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    if {name: tensor.shape for name, tensor in before.items()} != {name: t.shape for name, t in learnt.items()}:
        raise ValueError("the networks of before have other weights")
    return {
        name: torch.lerp(before[name].float(), tensor.float(), share).to(tensor.dtype)
        for name, tensor in learnt.items()
    }


if __name__ == "__main__":
    main()
