from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.virtual_backend import VirtualClock

from deployments.contract.counts import BUSY_S, LOAD_S, LOADS, STEPS
from deployments.replica import REPORTS_EVERY_S, Reports


class Counting:
    def __init__(self) -> None:
        self.counts: Mapping[str, float] = {STEPS: 0.0}
        self.setup: Mapping[str, str] = {"device": "cpu"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine() -> Counting:
    return Counting()


@pytest.fixture
def reports(engine: Counting, clock: VirtualClock) -> Reports:
    return Reports(engine, 3.5, clock)


def test_each_report_tells_what_came_since_the_last(reports: Reports, engine: Counting, clock: VirtualClock) -> None:
    loaded = {LOADS: 1, LOAD_S: 3.5}
    for steps, took in ((4, 2.0), (4, 0.5), (9, 3.0)):
        engine.counts = {STEPS: engine.counts[STEPS] + steps}
        reports.began()
        clock.now += took
        report = reports.due()
        reports.ended()
        clock.now += 100.0
        assert report is not None
        assert report.counts == {STEPS: steps, BUSY_S: pytest.approx(took), **loaded}
        loaded = {}  # is told once
        assert report.setup == {"device": "cpu"}


def test_seconds_with_several_jobs_count_once(reports: Reports, clock: VirtualClock) -> None:
    for _ in range(3):
        reports.began()
        clock.now += 1.0
    for _ in range(2):
        reports.ended()
        clock.now += 1.0
    report = reports.due()
    assert report is not None
    assert report.counts is not None
    assert report.counts[BUSY_S] == 5.0


def test_what_came_before_the_first_job_is_no_work(clock: VirtualClock, engine: Counting) -> None:
    engine.counts = {STEPS: 7.0}
    reports = Reports(engine, 3.5, clock)
    reports.began()
    report = reports.due()
    assert report is not None
    assert report.counts is not None
    assert STEPS not in report.counts


def test_while_others_go_on_reports_come_once_a_second(reports: Reports, clock: VirtualClock) -> None:
    for _ in range(2):
        reports.began()
    assert reports.due() is not None
    clock.now += REPORTS_EVERY_S / 2
    assert reports.due() is None
    clock.now += REPORTS_EVERY_S / 2
    assert reports.due() is not None
    reports.ended()
    assert reports.due() is not None, "nobody comes behind the last one to tell what it did"
