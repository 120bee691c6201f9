from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from benchmarks.peers.comparison import goals
from benchmarks.peers.request import PeerSettings, in_turns
from benchmarks.work import unlike


def file(level: int, size: tuple[int, int] = (16, 16)) -> bytes:
    made = io.BytesIO()
    Image.fromarray(np.full((*size, 3), level, np.uint8)).save(made, "png")
    return made.getvalue()


def test_pictures_are_alike_pixel_by_pixel_but_for_roundings() -> None:
    assert unlike([file(10), file(20)], [file(10), file(20)]) == []
    assert unlike([file(10)], [file(12)]) == ["picture 0: up to 2 levels of 255 apart"]
    assert unlike([file(10)], [file(12)], levels=2) == []
    assert unlike([file(10), file(10)], [b"", file(10, (16, 32))]) == [
        "picture 0 is missing, or of another size",
        "picture 1 is missing, or of another size",
    ]
    assert unlike([file(10)], []) == ["1 and 0 pictures"]


def test_requests_go_round_the_shapes_with_seeds_of_their_own() -> None:
    requests = in_turns([(64, 64, 4), (128, 64, 8)], 3, seed=7)
    assert [(each.shape, each.seed) for each in requests] == [((64, 64, 4), 7), ((128, 64, 8), 8), ((64, 64, 4), 9)]


def test_settings_go_through_the_environment_of_a_peer() -> None:
    told = PeerSettings("bundled/flux3", "2", "4", "/tmp", "8000", "redis://x")
    assert PeerSettings.of_environment(told.as_environment()) == told
    with pytest.raises(KeyError, match="PEER_CHECKPOINT"):
        PeerSettings.of_environment({})


def test_the_service_is_held_against_the_best_of_the_others() -> None:
    rows = {
        "pictures/s, mixed shapes": {"loop": 8.0, "celery": 10.0, "gen-serve": 12.0},
        "lost by kill -9 of the model, %": {"celery": 0.0, "gen-serve": 1.0},
    }
    faster, lost = goals(rows)
    assert (faster.measured, faster.met, lost.met) == (1.2, True, False)
