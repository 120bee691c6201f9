from __future__ import annotations

from random import Random

import pytest

from training.lessons.clips import lesson


def test_lessons_give_frames_in_all_ways() -> None:
    random = Random(3)
    seen = set[tuple[bool, bool, bool]]()
    for _ in range(60):
        batch = lesson(random)
        cells = batch.grid[0] * batch.grid[1]
        given = int(batch.given.sum())
        assert given % cells == 0
        assert not batch.given.all()
        assert batch.keyframes.shape[1] == batch.keyframe_coordinates.shape[1]
        assert batch.keyframes.shape[1] % cells == 0
        assert batch.weight.mean().item() == pytest.approx(1, abs=1e-4)
        seen.add((given > 0, given > cells, batch.keyframes.shape[1] > 0))
    assert {(False, False, False), (True, False, False), (True, True, False), (True, False, True)} <= seen
