"""Puts what the video model has learnt into its checkpoint: `python -m training.clips.publish`.

Training does so at its end; this is for looking at a model that still learns.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

import torch
from diffusers.utils.logging import disable_progress_bar

from training.build.folders import CHECKPOINTS, replace_weights
from training.clips.student import NAME, ClipStudent

STATE: Final = Path(".training") / f"{NAME}.pt"
"""Where training goes on from."""


def publish(student: ClipStudent, checkpoints: Path = CHECKPOINTS) -> None:
    """Writes the student's networks, in half precision, over those of its checkpoint."""
    disable_progress_bar()
    for component, network in student.networks().items():
        halved: Any = copy.deepcopy(network).half()
        replace_weights(checkpoints / NAME / component, halved.save_pretrained)


def stored(file: Path = STATE) -> tuple[ClipStudent, int]:
    """The student in its latest state, and how many steps that took."""
    student = ClipStudent()
    state = torch.load(file, weights_only=False)
    for name, network in student.networks().items():
        network.load_state_dict(state["networks"][name])
    return student, state["step"]


def main() -> None:
    student, step = stored()
    publish(student)
    print(f"{NAME}: {step} steps, written to {CHECKPOINTS / NAME}")


if __name__ == "__main__":
    main()
