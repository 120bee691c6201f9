"""Trains the bundled video model, and writes its weights into its checkpoint.

    python -m training.clips.train --steps 6000

An interrupted run goes on where it was with `--resume`. One core is enough.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.clips.course import ClipCourse, Plan
from training.clips.publish import STATE, publish
from training.clips.student import ClipStudent
from training.trainer.course import write_state
from training.trainer.memory import keep_freed_memory
from training.trainer.progress import follow


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    torch.manual_seed(arguments.seed)
    student = ClipStudent()
    for network in student.networks().values():
        network.train()
    course = ClipCourse(student, Plan(arguments.steps, seed=arguments.seed, rate=arguments.rate))
    if arguments.further:
        student.adopt()
    if arguments.resume and arguments.state.exists():
        course.resume(torch.load(arguments.state, weights_only=False))
    follow(course.run(lambda course: write_state(course.state(), arguments.state)), arguments.steps, course.step)
    publish(student)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--resume", action="store_true", help="go on from the state that is stored, if there is one")
    parser.add_argument("--further", action="store_true", help="begin with the checkpoint's weights")
    parser.add_argument("--rate", type=float, default=1.0, help="times the usual learning rates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--state", type=Path, default=STATE)
    return parser.parse_args()


if __name__ == "__main__":
    main()
