"""Looks at every state that can be reached, fewest mishaps first, then fewest steps, and tells what is wrong."""

from __future__ import annotations

from typing import NamedTuple

from support.task_life.invariants import violated
from support.task_life.scripts import ABSENT, ENDED, ERROR, SWEPT
from support.task_life.steps import SUBMIT, Dispatcher, Life, Slots, TaskLife, Work, World

ALWAYS_AN_END = "always_an_end"


class Found(NamedTuple):
    states: int
    steps: int
    violated: str = ""
    """The name of an invariant, or nothing."""
    trace: tuple[str, ...] = ()
    """The way there, in words."""


def search(life: TaskLife, mishaps: int) -> Found:
    """Ends at the first step that violates an invariant, or a state from which not all tasks can end by themselves.

    A state is looked at once, with as many mishaps to come as there can be.
    """
    start = plain(life.start)
    states, fewest, came_from = [start], [0], [0]
    known = {start: 0}
    ways: list[list[int]] = [[]]
    """By state: from which others a step leads there that is neither mishap nor forced."""
    steps = 0
    levels: list[list[int]] = [[0], *([] for _ in range(mishaps))]
    for level, due in enumerate(levels):
        for here in due:
            if fewest[here] < level:
                continue
            world = states[here]
            for step, after in life.steps(world, mishaps=level < mishaps):
                cost = level + step.mishap
                steps += 1
                if name := violated(world, step, after, life.same_key):
                    return Found(len(states), steps, name, (*_trace(life, states, came_from, here), str(step)))
                if after is world:
                    continue
                after = plain(after)
                there = known.setdefault(after, len(states))
                if there == len(states):
                    states.append(after)
                    fewest.append(cost)
                    came_from.append(here)
                    ways.append([])
                    levels[cost].append(there)
                elif cost < fewest[there]:
                    fewest[there], came_from[there] = cost, here
                    levels[cost].append(there)
                if there != here and not step.mishap and not step.forced:
                    ways[there].append(here)
    stuck = _first_without([n for n, world in enumerate(states) if _has_ended(world)], ways)
    if stuck is not None:
        return Found(len(states), steps, ALWAYS_AN_END, _trace(life, states, came_from, stuck))
    return Found(len(states), steps)


def plain(world: World) -> World:
    """The same for worlds that differ only in what nobody looks at any more, or in what is named first."""
    for i, life in enumerate(world.lives):
        world = _renumbered(world, i, _forgetful(life))
    one = World(world.lives, tuple(sorted(world.dispatchers)))
    first, *others = world.lives
    if not others or first < others[0]:
        return one
    turned = sorted(Dispatcher(each.work[::-1], each.kept[::-1], *each[2:]) for each in world.dispatchers)
    other = World(world.lives[::-1], tuple(turned))
    return min(one, other) if first == others[0] else other


def _forgetful(life: Life) -> Life:
    task = life.task
    if life.told and not life.over and SUBMIT not in life.adrift:
        life = life._replace(over=True)
    if "leased" not in task.places and (life.lost or life.orphaned):
        life = life._replace(lost=False, orphaned=False)
    if task.status in ENDED:
        return life._replace(task=task._replace(begun=0, strikes=0, losses=0))
    if task.begun and task.begun != task.attempt:
        return life._replace(task=task._replace(begun=0))
    return life


def _renumbered(world: World, i: int, life: Life) -> World:
    """Attempts are compared for being the same, so numbers that nobody names are left out."""
    task = life.task
    if task.attempt == 0 or (task.attempt == 1 and task.status not in ENDED):
        return world if life is world.lives[i] else world.live(i, life)
    named = {0, *(call.attempt for call in life.adrift)}
    for each in world.dispatchers:
        if one := each.work[i]:
            named.add(one[0])
        if one := each.kept[i]:
            named.add(one[0])
    if len(named) == 1 and task.attempt and task.status in ENDED:
        task = task._replace(status=ERROR, attempt=0, published=())
        return world.live(i, life._replace(task=task))
    named.add(task.attempt)
    named.update(task.published)
    if len(named) == max(named) + 1:
        return world if life is world.lives[i] else world.live(i, life)
    number = {attempt: n for n, attempt in enumerate(sorted(named))}

    def renamed(slots: Slots) -> Slots:
        one = slots[i]
        if not isinstance(one, Work):
            return slots
        return (*slots[:i], one._replace(attempt=number[one.attempt]), *slots[i + 1 :])

    task = task._replace(
        attempt=number[task.attempt],
        begun=number[task.begun] if task.begun else 0,
        published=tuple(number[attempt] for attempt in task.published),
    )
    adrift = tuple(sorted(call._replace(attempt=number[call.attempt]) for call in life.adrift))
    dispatchers = (each._replace(work=renamed(each.work), kept=renamed(each.kept)) for each in world.dispatchers)
    return World(world.lives, tuple(dispatchers)).live(i, life._replace(task=task, adrift=adrift))


def _has_ended(world: World) -> bool:
    return all(life.task.status in (ABSENT, SWEPT, *ENDED) for life in world.lives)


def _first_without(ends: list[int], ways: list[list[int]]) -> int | None:
    """The first state from which none of `ends` is reached."""
    good = bytearray(len(ways))
    for n in ends:
        good[n] = 1
    while ends:
        for n in ways[ends.pop()]:
            if not good[n]:
                good[n] = 1
                ends.append(n)
    stuck = good.find(0)
    return None if stuck < 0 else stuck


def _trace(life: TaskLife, states: list[World], came_from: list[int], last: int) -> tuple[str, ...]:
    """The steps from the start to a state, with the same names for tasks and dispatchers all the way."""
    path = [last]
    while path[-1]:
        path.append(came_from[path[-1]])
    world, words = life.start, []
    for n in reversed(path[:-1]):
        step, world = next(
            (step, after) for step, after in life.steps(world, mishaps=True) if plain(after) == states[n]
        )
        words.append(str(step))
    return tuple(words)
