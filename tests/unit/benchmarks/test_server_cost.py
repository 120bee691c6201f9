from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.server_cost import Reading, main_thread_cpu_us


def stats(**usec: int) -> dict[str, Any]:
    return {f"cmdstat_{name}": {"calls": 1, "usec": us} for name, us in usec.items()}


def test_what_a_script_calls_is_part_of_it() -> None:
    before = Reading(1000, stats(evalsha=100, hget=40))
    spent = before.until(Reading(1500, stats(evalsha=180, hget=90, zadd=20)))
    assert (spent.cpu_us, spent.inside_us) == (500, 80)


def test_without_scripts_every_command_counts_but_the_reading_itself() -> None:
    before = Reading(0, stats(evalsha=100, hgetall=5, info=70))
    assert before.until(Reading(9, stats(evalsha=100, hgetall=12, zcard=3, info=90))).inside_us == 10


def test_the_cpu_time_of_a_thread_grows_with_its_work() -> None:
    before = main_thread_cpu_us(os.getpid())
    working = time.thread_time() + 0.05
    while time.thread_time() < working:
        pass
    # The kernel books a running thread's time at its next tick.
    assert 20_000 < main_thread_cpu_us(os.getpid()) - before < 10_000_000


def test_there_is_no_cpu_time_of_no_process() -> None:
    nobody = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    with pytest.raises(FileNotFoundError):
        main_thread_cpu_us(nobody)
