"""What must hold before and after every step of the model. The first names are those of `serve_app/tasks/store.py`."""

from __future__ import annotations

from collections.abc import Callable

from support.task_life.scripts import ABSENT, ENDED, SWEPT, Task
from support.task_life.steps import Life, Step, Work, World

_FENCED = ("heartbeat", "advance", "complete", "release")


def one_place(before: Life, step: Step, after: Life) -> bool:
    task = after.task
    if task.status in (ABSENT, SWEPT):
        return not task.places
    if task.status in ENDED:
        return task.places == ("retention",)
    places = [place for place in ("queued", "suspects", "leased") if place in task.places]
    isolated_waits = "isolated" in task.places and "leased" not in task.places
    return "deadlines" in task.places and "retention" not in task.places and len(places) == 1 and not isolated_waits


def fenced(before: Life, step: Step, after: Life) -> bool:
    old, new = before.task, after.task
    if new.status == SWEPT:
        return True
    if step.name in _FENCED and step.call.attempt != old.attempt:
        return new == old
    return new.attempt - old.attempt in ((0, 1) if step.name == "lease" else (0,))


def one_outcome(before: Life, step: Step, after: Life) -> bool:
    old, new = before.task, after.task
    if old.status in ENDED and new.status != SWEPT and _outcome(new) != _outcome(old):
        return False
    return len(new.published) <= 1 and not (old.status == SWEPT != new.status)


def _outcome(task: Task) -> tuple[object, ...]:
    return task.status, task.cancelled, task.published


def strikes_are_losses(before: Life, step: Step, after: Life) -> bool:
    old, new = before.task, after.task
    return new.strikes <= new.losses and new.losses - old.losses <= before.lost


def held_until_ended(before: Life, step: Step, after: Life) -> bool:
    ended = after.task.status in (*ENDED, SWEPT)
    return after.task.held == (not ended and after.task.status != ABSENT) and after.task.settled == ended


def answers_are_true(before: Life, step: Step, after: Life) -> bool:
    task = after.task
    if after.told in ("accepted", "refused") and (task.status != ABSENT) != (after.told == "accepted"):
        return False
    if step.name == "cancel" and step.answer:
        return task.status in ENDED and task.cancelled == (step.answer == "cancelled")
    return True


EACH_LIFE: tuple[Callable[[Life, Step, Life], bool], ...] = (
    one_place,
    fenced,
    one_outcome,
    strikes_are_losses,
    held_until_ended,
    answers_are_true,
)


def leases_are_heard_of(world: World) -> bool:
    """Whoever was handed a lease has it, will have it when it asks again, or is gone; or the lease runs out."""
    for i, life in enumerate(world.lives):
        task = life.task
        if "leased" in task.places and not task.run_out and not life.orphaned:
            owed = [one for each in world.dispatchers for one in (each.work[i], each.kept[i])]
            if not any(isinstance(one, Work) and one.attempt == task.attempt for one in owed):
                return False
    return True


def one_task_per_key(world: World, same_key: bool) -> bool:
    made = sum(life.task.status != ABSENT for life in world.lives)
    told = any(life.told == "repeated" for life in world.lives)
    return not same_key or (made <= 1 and (made == 1 or not told))


def violated(before: World, step: Step, after: World, same_key: bool) -> str:
    """The name of an invariant that this step breaks, or nothing."""
    for i, (old, new) in enumerate(zip(before.lives, after.lives, strict=True)):
        if new is not old or i == step.task:
            for holds in EACH_LIFE:
                if not holds(old, step, new):
                    return holds.__name__
    if not leases_are_heard_of(after):
        return leases_are_heard_of.__name__
    return "" if one_task_per_key(after, same_key) else one_task_per_key.__name__
