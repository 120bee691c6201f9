"""Trains a bundled model, and writes its weights into its checkpoint.

    python -m training.trainer.train flux3 --steps 20000

Interrupted runs go on where they were; a new run with `--further` goes on from the checkpoint's own weights, with
`--further flux` from those of another one, whose networks must be the same. One core is enough; two runs beside each
other finish sooner than one on both.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from random import Random

import torch

from training.build import build_flux1
from training.lessons.batches import ALL, MIXES, Batch, practice
from training.trainer.course import write_state
from training.trainer.flow import PictureCourse, Plan, Practice
from training.trainer.memory import keep_freed_memory
from training.trainer.progress import follow
from training.trainer.prompt_reading import read_prompts
from training.trainer.publish import publish
from training.trainer.reading import Reading
from training.trainer.students import STATES, STUDENTS
from training.trainer.weights import Published, published


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    torch.manual_seed(arguments.seed)
    student = STUDENTS[arguments.model]()
    for network in student.networks().values():
        network.to(arguments.device).train()
    plan = Plan(arguments.steps, batch=arguments.batch, seed=arguments.seed, rate=arguments.rate)
    reading = Reading(student.networks()["transformer"]).to(arguments.device)
    everything = arguments.further is not None and not arguments.gradually
    course = PictureCourse(student, plan, _practice(MIXES[arguments.model], everything), reading)
    file = arguments.states / f"{arguments.model}.pt"
    if arguments.further is not None:
        student.adopt(_published_in(arguments.further))
    if file.exists():
        course.resume(torch.load(file, weights_only=False))
    elif arguments.read_first:
        read_prompts(student.networks()["text_encoder_2"], arguments.read_first, arguments.seed)
    follow(course.run(lambda course: write_state(course.state(), file)), plan.steps, course.step)
    publish(student)


def _practice(mix: Mapping[str, float], everything: bool) -> Practice:
    """Lessons come in as the course goes on, or all of them are there from its beginning."""

    def batch(size: int, random: Random, done: float) -> Batch:
        return practice(mix, size, random, max(done, ALL) if everything else done)

    return batch


def _published_in(one: str) -> Published:
    """Whatever checkpoint is asked for, weights of `one`; if that is empty, of those that are asked for."""
    return (lambda _, component: published(one, component)) if one else published


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(STUDENTS))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1.0, help="times the usual learning rates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--further",
        nargs="?",
        const="",
        metavar="CHECKPOINT",
        help="begin with published weights, and all lessons",
    )
    parser.add_argument("--gradually", action="store_true", help="with --further: words alone first, once more")
    parser.add_argument(
        "--read-first",
        type=int,
        default=0,
        metavar="STEPS",
        help="a new course begins with so many of T5 alone, asked about prompts (Flux1 models)",
    )
    parser.add_argument("--states", type=Path, default=STATES)
    arguments = parser.parse_args()
    if arguments.read_first and arguments.model not in ("flux1", *build_flux1.KINDS):
        parser.error(f"--read-first: {arguments.model} has no T5")
    return arguments


if __name__ == "__main__":
    main()
