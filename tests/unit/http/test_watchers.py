"""How many may follow tasks at a time."""

from __future__ import annotations

from contextlib import ExitStack

from serve_app.api.services import Watchers


def follow(watchers: Watchers, stack: ExitStack, task: str, times: int) -> int:
    """How many of them have room to wait."""
    return sum(stack.enter_context(watchers.one_more(task)) for _ in range(times))


def test_one_task_has_some() -> None:
    watchers = Watchers(2000)
    with ExitStack() as stack:
        assert follow(watchers, stack, "one", 100) == 32
        assert follow(watchers, stack, "other", 10) == 10
    with ExitStack() as stack:
        assert follow(watchers, stack, "one", 100) == 32


def test_all_together_have_half_of_the_places() -> None:
    watchers = Watchers(100)
    with ExitStack() as stack:
        assert sum(follow(watchers, stack, f"{number}", 10) for number in range(10)) == 50
        with watchers.one_more("late") as room:
            assert not room
    with watchers.one_more("late") as room:
        assert room
