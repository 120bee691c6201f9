from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import httpx2
import numpy as np
from PIL import Image

from benchmarks.peers import same_work
from benchmarks.peers.asked import Asked
from benchmarks.peers.measuring import Measured
from benchmarks.peers.plan import SMOKE
from benchmarks.peers.request import Request
from benchmarks.peers.side import Side
from benchmarks.work import Work

SHAPE = (64, 64, 4)
REQUEST = Request("", *SHAPE, seed=1)
DONE = Work((64, 64), 4, "float32", SMOKE.threads)


class Still(Side):
    """A side that is never started."""

    name = "still"

    def _start(self) -> None: ...

    async def carry(self, client: httpx2.AsyncClient, asked: Asked) -> None: ...


def png(brightness: int, size: tuple[int, int] = SHAPE[:2]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((size[1], size[0], 3), brightness, np.uint8)).save(file, "png")
    return file.getvalue()


def made(picture: bytes, facts: Mapping[str, Any]) -> Measured:
    asked = Asked(REQUEST, 0.0, jpeg=picture, facts=dict(facts))
    return Measured(solo={SHAPE: [asked]}, judged=[asked])


def faults(one: Measured) -> list[str]:
    return same_work.faults(Still(), one, made(png(7), {}), SMOKE)


def test_the_same_picture_by_the_work_that_was_asked_for_is_no_fault() -> None:
    assert faults(made(png(7), {"work": asdict(DONE)})) == []
    assert faults(made(png(7), {})) == []  # the picture alone proves it


def test_other_work_is_a_fault_even_where_the_picture_is_the_same() -> None:
    for other in ({"rendered": (32, 64)}, {"steps": 3}, {"dtype": "bfloat16"}, {"threads": SMOKE.threads + 1}):
        [fault] = faults(made(png(7), {"work": asdict(DONE) | other}))
        assert fault.startswith("still: computed Work(")


def test_another_picture_is_a_fault_even_where_the_work_is_said_to_be_the_same() -> None:
    [fault] = faults(made(png(9), {"work": asdict(DONE)}))
    assert "is not the loop's picture (2)" in fault


def test_a_side_that_tells_nothing_of_its_work_may_have_rounded_otherwise() -> None:
    assert faults(made(png(15), {})) == []
    [fault] = faults(made(png(16), {}))
    assert "is not the loop's picture (9)" in fault


def test_a_picture_of_another_size_and_none_at_all_are_faults() -> None:
    assert any("1 of 1 requests" in fault for fault in faults(made(png(7, (64, 48)), {})))
    assert any("1 of 1 requests" in fault for fault in faults(made(b"", {})))
