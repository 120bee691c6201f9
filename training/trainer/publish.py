"""Puts what a model has learnt into its checkpoints: `python -m training.trainer.publish MODEL...`.

Training does so at its end; this is for looking at a model that still learns.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

from diffusers.utils.logging import disable_progress_bar

from training.build.folders import CHECKPOINTS, replace_weights
from training.trainer.flow import Student
from training.trainer.students import STATES, STUDENTS, stored


def publish(student: Student, checkpoints: Path = CHECKPOINTS) -> None:
    """Writes the student's networks, in half precision, over those of its checkpoints."""
    disable_progress_bar()
    for checkpoint, components in student.checkpoints().items():
        for component, network in components.items():
            halved: Any = copy.deepcopy(network).half()
            replace_weights(checkpoints / checkpoint / component, halved.save_pretrained)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=sorted(STUDENTS))
    parser.add_argument("--states", type=Path, default=STATES)
    arguments = parser.parse_args()
    for model in arguments.models:
        student, step = stored(model, arguments.states)
        publish(student)
        print(f"{model}: {step} steps, written to {', '.join(student.checkpoints())}")


if __name__ == "__main__":
    main()
