"""How long a lane's tasks wait and take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deployments.contract.counts import Histogram
from serve_app.tasks import views
from serve_app.tasks.views import BUCKETS, WAIT, WORK, LaneLoad


def load(running: int, work: dict[str, str]) -> LaneLoad:
    histograms: dict[str, Histogram] = {name: BUCKETS.read(name, work) for name in (WAIT, WORK)}
    return LaneLoad(queued=5, suspects=1, running=running, counts={}, histograms=histograms)


@pytest.mark.parametrize(("running", "wait_s"), [(0, 12.0), (1, 12.0), (4, 3.0)])
def test_the_wait_is_what_waits_by_as_many_as_run(running: int, wait_s: float) -> None:
    found = load(running, {"work:1000": "1", "work:5000": "1", "work:sum": "4000"})
    assert (found.queued_s, found.wait_s) == (12.0, wait_s)


def test_nothing_is_expected_before_a_task_has_ended() -> None:
    found = load(1, {})
    assert (found.queued_s, found.wait_s) == (None, None)


def test_the_script_counts_in_the_buckets_that_python_reads() -> None:
    script = Path(views.__file__).with_name("timings.lua").read_text()
    listed = re.search(r"BUCKETS_MS = \{([\d, ]+)\}", script)
    assert listed is not None
    assert tuple(int(bound) for bound in listed[1].split(",")) == BUCKETS.bounds
