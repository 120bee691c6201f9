"""A pytest plugin that records the time of tests, and a report of it.

`--times FILE` appends a run to a file: the seconds of each test, and the CPU seconds of the run with all its processes.
`python -m support.timing FILE` prints the groups and the slowest tests. With `--budget FILE` it exits with 1 if the
runs took over a minute more CPU time than the seconds in that file. CPU time hardly depends on the machine's load.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

service_cpu_s: Final = list[float]()
"""CPU seconds of whole services, whose processes are not children of this one."""
_GROWTH_S: Final = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, metavar="FILE", help="append the times of this run to a file")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--times")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(file.absolute()))


class _Recorder:
    """Adds up the phases of each test and writes them at the end of the run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Writes the record. It runs last: xdist's workers count among the children only after their end."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu_s = sum(each.ru_utime + each.ru_stime for each in used) + sum(service_cpu_s)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            print(json.dumps({"cpu_s": round(cpu_s, 1), "tests": self._seconds}), file=file)


def _print_report(runs: list[dict[str, Any]]) -> None:
    seconds: dict[str, float] = {name: spent for run in runs for name, spent in run["tests"].items()}
    groups = defaultdict[str, float](float)
    for name, spent in seconds.items():
        groups["/".join(name.partition("::")[0].split("/")[1:-1][:2])] += spent
    for title, times in ((f"{len(seconds)} tests, by group", groups), ("the slowest of them", seconds)):
        print(f"{sum(times.values()):8.1f}  {title}")
        for name, spent in sorted(times.items(), key=lambda item: -item[1])[:20]:
            print(f"{spent:8.1f}  {name}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="support.timing")
    parser.add_argument("file", type=Path)
    parser.add_argument("--budget", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    runs = [json.loads(line) for line in options.file.read_text().splitlines()]
    _print_report(runs)
    cpu_s = sum(run["cpu_s"] for run in runs)
    print(f"\nCPU time: {cpu_s:.0f} s")
    over = options.budget is not None and cpu_s > float(options.budget.read_text()) + _GROWTH_S
    if over:
        print(f"Over the budget: make tests cheaper, mark them `slow`, or raise {options.budget}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
