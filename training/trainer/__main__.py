"""Trains a bundled model, and writes its weights into its checkpoint.

    python -m training.trainer flux3

Interrupted runs go on where they were. After one that is done, `--further` goes on from the checkpoint's own weights,
`--further flux` from those of another one, whose networks must be the same. One core is enough; `--processes 2` takes
two.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from training.lessons.batches import ALL, BATCH, MIXES, practice
from training.lessons.clips import lesson
from training.trainer import decoder, flux1, guidance, outlined
from training.trainer.course import Course, Plan
from training.trainer.flow import ClipFlow, PictureFlow
from training.trainer.flux1 import Flux1Student
from training.trainer.ltx2 import ClipStudent
from training.trainer.processes import ALONE, Processes, run_processes
from training.trainer.qwen import Flux2Student, Flux3Student
from training.trainer.reading import PictureReading, prompt_course
from training.trainer.student import publish, published

STUDENTS: Final[Mapping[str, Callable[[], Any]]] = {
    "flux1": Flux1Student,
    **{name: partial(Flux1Student, name) for name in flux1.NAMES},
    "flux2": Flux2Student,
    "flux3": Flux3Student,
    "ltx2": ClipStudent,
}
"""`flux1` is `flux`, `kontext`, `fill` and `canny` in one."""
STEPS: Final[Mapping[str, int]] = {
    **dict.fromkeys(STUDENTS, 20_000),
    "ltx2": 6_000,
    "outlined": 600,
    "decoder": decoder.STEPS,
}
BATCHES: Final[Mapping[str, int]] = {"ltx2": 2}
"""Per step, where not as usual."""
_STATES: Final = Path(".training")
"""Where training goes on from."""


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _arguments(arguments)
    run_processes(chosen.processes, partial(_learn, chosen))


def _learn(chosen: argparse.Namespace, processes: Processes) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    keep_freed_memory()
    steps = guidance.STEPS if chosen.guidance else STEPS[chosen.model]
    batches = {"batches": BATCHES[chosen.model]} if chosen.model in BATCHES else {}
    plan = Plan(chosen.steps or steps, seed=chosen.seed, rate=chosen.rate, **batches)
    state = _STATES / f"{chosen.model}.pt"
    if chosen.model == "outlined":
        student = outlined.OutlinedStudent()
        student.adopt(published)
        outlined.train(student, plan)
    elif chosen.model == "decoder":
        decoder.train(plan, state)
    elif chosen.guidance:
        student, course = guidance.course_of(chosen.model, plan)
        _finish(student, course, _STATES / f"{chosen.model}-guidance.pt")
    elif chosen.publish:
        student, step = stored(chosen.model, state)
        publish(student)
        print(f"{chosen.model}: {step} steps, written to {', '.join(student.checkpoints())}")
    else:
        _train(chosen, plan, state, processes)


def _train(chosen: argparse.Namespace, plan: Plan, state: Path, processes: Processes) -> None:
    student: Any = STUDENTS[chosen.model]()
    if chosen.further is not None:
        student.adopt(lambda own, part, kind: published(chosen.further or own, part, kind))
    for network in student.networks().values():
        network.train()
    if chosen.read_first and not state.exists():
        encoder = student.networks()["text_encoder_2"]
        prompt_course(encoder, student.tokenizer_2, chosen.read_first, chosen.seed).follow()
    everything = chosen.further is not None and not chosen.gradually
    _finish(student, course_of(chosen.model, student, plan, everything, processes), state, processes)


def _finish(student: Any, course: Course[Any], state: Path, processes: Processes = ALONE) -> None:
    """A course that is done leaves no state: the next one would go on from it, and write over newer weights."""
    course.follow(state)
    if processes.rank == 0:
        publish(student)
        state.unlink(missing_ok=True)


def course_of(
    model: str, student: Any, plan: Plan, everything: bool = False, processes: Processes = ALONE
) -> Course[Any]:
    """Of clips; or of pictures, in which lessons come in as it goes on, or `everything` is there from its beginning."""
    if model == "ltx2":
        return Course(ClipFlow(student), lambda random, done: lesson(random), plan, processes)
    learner, least = PictureFlow(student, PictureReading(student.transformer)), ALL if everything else 0.0
    return Course(
        learner, lambda random, done: practice(MIXES[model], BATCH, random, max(done, least)), plan, processes
    )


def stored(model: str, state: Path) -> tuple[Any, int]:
    """The student in its latest state, and how many steps that took."""
    student = STUDENTS[model]()
    known = torch.load(state, weights_only=False)
    for name, network in student.networks().items():
        network.load_state_dict(known["networks"][name])
    return student, known["step"]


def keep_freed_memory() -> None:
    """Freed tensors are needed again in the next step; giving their pages back in between takes a fifth of the time."""
    trim_threshold, mmap_threshold = -1, -3  # of glibc's malloc.h
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(trim_threshold, 2**31 - 1)
        library.mallopt(mmap_threshold, 2**30)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    which = "outlined is a LoRA of flux3; decoder, that of the autoencoders of pictures"
    option("model", choices=list(STEPS), help=which)
    option("--steps", type=int, help=", ".join(f"{model} {steps:,}" for model, steps in STEPS.items()))
    option("--rate", type=float, default=1.0, help="times the usual learning rates")
    option("--seed", type=int, default=0)
    option("--processes", type=int, choices=(1, 2), default=1, help="which take the batches of a step side by side")
    begun = "begin with published weights, and all lessons"
    option("--further", nargs="?", const="", metavar="CHECKPOINT", help=begun)
    option("--gradually", action="store_true", help="with --further: words alone first, once more")
    asked = "a new course begins with so many of T5 alone, asked about prompts (Flux1 models)"
    option("--read-first", type=int, default=0, metavar="STEPS", help=asked)
    taught = f"teach a finished {', '.join(guidance.FORMS)} what the guidance of its requests means"
    option("--guidance", action="store_true", help=taught)
    option("--publish", action="store_true", help="only write what is learnt so far into the checkpoint")
    chosen = parser.parse_args(arguments)
    if chosen.read_first and chosen.model not in ("flux1", *flux1.NAMES):
        parser.error(f"--read-first: {chosen.model} has no T5")
    if chosen.guidance and (chosen.model not in guidance.FORMS or chosen.publish or chosen.further is not None):
        parser.error(f"--guidance: of {', '.join(guidance.FORMS)}, by itself")
    if chosen.model not in STUDENTS and (chosen.publish or chosen.further is not None):
        parser.error(f"{chosen.model} is no checkpoint: neither --further nor --publish means anything")
    if chosen.gradually and (chosen.further is None or chosen.model not in MIXES):
        parser.error("--gradually: only pictures' courses with --further have words alone first")
    course = chosen.model in STUDENTS and not (chosen.publish or chosen.guidance or chosen.read_first)
    if chosen.processes > 1 and not course:
        parser.error("--processes: only courses of checkpoints are taken by several")
    return chosen


if __name__ == "__main__":
    main()
