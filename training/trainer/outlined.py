"""A tuned model to try uploads with: pictures in outlined style, learnt on top of the Flux3 checkpoint's weights.

It is a LoRA of a fifth of a megabyte. The base stays as it is: two small matrices per layer learn what has to be added
to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from peft import LoraConfig, get_peft_model_state_dict, inject_adapter_in_model
from safetensors.torch import save_file
from torch import nn

from training.build.bundle import OUTLINED
from training.lessons.batches import BATCH, outlined_practice
from training.trainer.course import Course, Plan
from training.trainer.flow import PictureFlow
from training.trainer.qwen import Flux3Student

RANK: Final = 8


class OutlinedStudent(Flux3Student):
    """Of which only the additions learn, once it has them."""

    def add_layers(self) -> None:
        """Beside the linear layers of the joint blocks. They add nothing, to begin with."""
        for network in self.networks().values():
            network.requires_grad_(False)
        layers = [
            name
            for name, module in self.transformer.named_modules()
            if isinstance(module, nn.Linear) and "single_transformer_blocks" in name
        ]
        inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=layers), self.transformer)

    def save(self, file: Path) -> None:
        """In half precision, with the names that diffusers gives the matrices."""
        matrices = get_peft_model_state_dict(self.transformer)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({f"transformer.{name}": weight.half().contiguous() for name, weight in matrices.items()}, file)
        file.chmod(0o644)


def train(student: OutlinedStudent, plan: Plan, file: Path = OUTLINED) -> None:
    """`student` has the weights of the base."""
    student.add_layers()
    Course(PictureFlow(student), lambda random, done: outlined_practice(BATCH, random), plan).follow()
    student.save(file)
