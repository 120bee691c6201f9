"""A tuned model to try uploads with: pictures in outlined style, learnt on top of the Flux3 checkpoint's weights.

    python -m training.trainer.outlined [--steps N]

writes `deployments/bundled/adapters/outlined.safetensors`, a LoRA of a third of a megabyte. The base stays as it is:
two small matrices per layer learn what has to be added to it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random
from typing import Final

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from training.lessons.batches import Batch, batch_of, random_grid
from training.lessons.latents import RESOLUTION, to_tokens
from training.lessons.pictures import tell
from training.trainer.flow import PictureCourse, Plan, Student
from training.trainer.progress import follow
from training.trainer.students import STUDENTS
from training.trainer.weights import published
from training.worlds.pictures.drawing import draw

FILE: Final = Path(__file__).parents[2] / "deployments" / "bundled" / "adapters" / "outlined.safetensors"
RANK: Final = 8
STEPS: Final = 600


class LowRank(nn.Module):
    """Adds `up(down(x))` to what a linear layer makes of x: nothing, to begin with."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.down = nn.Linear(linear.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def attach(self, linear: nn.Linear) -> RemovableHandle:
        return linear.register_forward_hook(lambda _, inputs, output: output + self.up(self.down(inputs[0])))


class Outlined:
    """A student of which only the additions learn."""

    def __init__(self, base: Student) -> None:
        self._base = base
        transformer = base.networks()["transformer"]
        for network in base.networks().values():
            network.requires_grad_(False)
        self.layers = {
            name: module
            for name, module in transformer.named_modules()
            if isinstance(module, nn.Linear) and "single_transformer_blocks" in name
        }
        self.shift = base.shift
        self._additions = nn.ModuleList([LowRank(linear) for linear in self.layers.values()])
        for addition, linear in zip(self._additions, self.layers.values(), strict=True):
            assert isinstance(addition, LowRank)
            addition.attach(linear)

    def networks(self) -> dict[str, nn.Module]:
        return {"additions": self._additions}

    def checkpoints(self) -> dict[str, dict[str, nn.Module]]:
        return {}

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        return self._base.velocity(x, t, t_next, batch)

    def save(self, file: Path) -> None:
        """In half precision, with the names that diffusers gives them."""
        matrices: dict[str, Tensor] = {}
        for name, addition in zip(self.layers, self._additions, strict=True):
            assert isinstance(addition, LowRank)
            matrices[f"transformer.{name}.lora_A.weight"] = addition.down.weight.detach().half().contiguous()
            matrices[f"transformer.{name}.lora_B.weight"] = addition.up.weight.detach().half().contiguous()
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(matrices, file)
        file.chmod(0o644)


def practice(size: int, random: Random, done: float = 0.0) -> Batch:
    """Ordinary prompts; the pictures are outlined."""
    grid = random_grid(random)
    lessons = [tell(random, grid) for _ in range(size)]
    batch = batch_of(lessons, grid, random)
    outlined, _ = draw([lesson.target for lesson in lessons], grid, RESOLUTION, outlined=True)
    return batch.showing(to_tokens(outlined))


def train(base: Student, steps: int, file: Path = FILE, seed: int = 0) -> None:
    torch.manual_seed(seed)
    student = Outlined(base)
    course = PictureCourse(student, Plan(steps, seed=seed), practice)
    follow(course.run(lambda course: None), steps)
    student.save(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    base = STUDENTS["flux3"]()
    base.adopt(published)
    train(base, arguments.steps)


if __name__ == "__main__":
    main()
