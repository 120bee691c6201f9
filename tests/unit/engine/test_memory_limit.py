from __future__ import annotations

import pytest

from deployments.engine.memory_limit import PATIENCE, MemoryLimit


def test_memory_halves_what_failed_and_grows_back_by_one() -> None:
    memory = MemoryLimit(8)
    memory.failed(6)
    assert memory.size == 3
    for _ in range(PATIENCE - 1):
        memory.fitted(3)
    memory.fitted(2)
    assert memory.size == 3, "a batch that was not full says nothing"
    memory.fitted(3)
    assert memory.size == 4
    memory.failed(3)
    assert memory.size == 1


def test_a_picture_that_does_not_fit_alone_says_nothing_about_batches() -> None:
    memory = MemoryLimit(8)
    for _ in range(3):
        memory.failed(1)
    assert memory.size == 8


def test_a_size_that_failed_twice_is_not_tried_again() -> None:
    memory = MemoryLimit(8)
    for _ in range(2):
        memory.failed(4)
        for _ in range(10 * PATIENCE):
            if memory.size == 4:
                break
            memory.fitted(memory.size)
    assert memory.size == 3


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        MemoryLimit(0)
