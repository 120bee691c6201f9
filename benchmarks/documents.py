"""Figures in the docs: each block stands between two marks and is written from the published results.

    <!-- figures: NAME -->
    what VIEWS[NAME] makes of the results
    <!-- end of figures -->

A test writes them again and compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.gpu import report
from benchmarks.harness import MODULES, PUBLISHED, Result, plain, read_all

DOCS: Final = Path(__file__).parents[1] / "docs"
_BLOCK: Final = re.compile(r"(<!-- figures: (?P<view>[a-z-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)

Results: TypeAlias = Mapping[str, Result]


def write(published: Path = PUBLISHED, docs: Path = DOCS) -> list[str]:
    """The names of the documents that changed."""
    found, changed = read_all(published), []
    for path in sorted(docs.glob("*.md")):
        before = path.read_text()
        after = filled(before, found)
        if after != before:
            path.write_text(after)
            changed.append(path.name)
    return changed


def filled(text: str, found: Results) -> str:
    """With every block written anew. Raises ValueError for one that asks for a view there is not."""

    def block(match: re.Match[str]) -> str:
        if match["view"] not in VIEWS:
            raise ValueError(f"no figures {match['view']!r}; there are {', '.join(VIEWS)}")
        return f"{match[1]}\n{VIEWS[match['view']](found).strip()}\n\n{match[3]}"

    return _BLOCK.sub(block, text)


def goals(found: Results) -> str:
    """Every goal of every benchmark, those that are missed first; and on what they were measured."""
    rows = [
        (goal.name, goal.found, goal.wanted if goal.met else f"**missed**: {goal.wanted}", f"`{name}`")
        for name, result in found.items()
        for goal in result.report.goals
    ]
    machines = dict.fromkeys(
        f"{facts['cores']} cores of {facts['cpu']}, {facts['memory_gib']:g} GiB, Python {facts['python']}, "
        f"torch {facts['versions']['torch']}, ray {facts['versions']['ray']}"
        for facts in (result.machine for result in found.values())
    )
    commits = ", ".join(sorted({each for result in found.values() for each in result.machine["commit"].split(", ")}))
    told = f"Measured on {'; '.join(machines)}; commits {commits}." if found else ""
    if waiting := [f"`{name}`" for name in MODULES if name not in found]:
        told += f" Not measured yet: {', '.join(waiting)}."
    heads = ("what", "measured (95 % interval)", "goal", "benchmark")
    return f"{table(heads, sorted(rows, key=lambda row: 'missed' not in row[2]))}\n\n{told}"


def sizing(found: Results) -> str:
    """What everything around the models takes, for whoever counts machines."""
    of, stored = found["cost"].report.figures, found["store"].report.figures["bytes_per_task"]
    by_role = of["cpu_ms_per_task_by_role"]
    roles = ", ".join(f"{role} {plain(by_role[role])}" for role in ("ingress", "dispatcher", "redis"))
    rows = [
        ("a submission", f"{plain(of['submit_cpu_ms'])} ms of CPU"),
        ("a poll", f"{plain(of['poll_cpu_ms'])} ms of CPU"),
        ("a whole task, moderated and with a webhook", f"{plain(of['cpu_ms_per_task'])} ms of CPU ({roles})"),
        ("a waiting task", f"{plain(stored['waiting'])} bytes of Redis"),
        ("an ended one, while it is kept", f"{plain(stored['finished'])} bytes of Redis"),
        ("the service at rest", f"{plain(1024 * of['memory_gib'])} MiB"),
    ]
    tasks, polls = 20, 10
    busy = tasks * (of["cpu_ms_per_task"] + polls * of["poll_cpu_ms"]) / 1000
    told = (
        f"So {tasks} tasks a second, each polled {polls} times, keep {busy:.1f} of a core busy, and a million kept "
        f"tasks {1e6 * stored['finished'] / 2**30:.1f} GiB of Redis."
    )
    return f"{table(('', 'takes'), rows)}\n\n{told}"


def sides(name: str, found: Results) -> str:
    """A row a figure, a column a side."""
    of = found[name].report.figures
    rows = [
        (row, *(plain(values[side]) if values.get(side) is not None else "" for side in of["sides"]))
        for row, values in of["rows"].items()
    ]
    return table(("", *of["sides"]), rows)


def chaos(outcome: str, _: Results) -> str:
    """From that JSON of `make chaos` or `make chaos-cluster`: how long each fault hurt, the slowest recovery first."""
    rows = [
        (fault, str(of["times"]), f"{of['p50_s']:.1f} s", f"{of['max_s']:.1f} s")
        for fault, of in sorted(_of_chaos(outcome)["faults"].items(), key=lambda each: -each[1]["max_s"])
    ]
    return table(("fault", "times", "recovery, median", "at most"), rows)


def chaos_promises(outcome: str, _: Results) -> str:
    """How the tasks of each run ended, and which promises were broken."""
    rows = [
        (
            run["on"],
            run["promises"][0]["measured"],
            str(len(run["promises"])),
            "; ".join(each["promise"] for each in run["promises"] if not each["kept"]) or "none",
        )
        for run in _of_chaos(outcome)["runs"]
    ]
    return table(("run", "tasks", "promises checked", "broken"), rows)


def backlog(outcome: str, _: Results) -> str:
    """What `make chaos-cluster` does last."""
    found = _of_chaos(outcome)["backlog"]
    return (
        f"A backlog of {found['tasks']} tasks took {found['with_kills_s']:.0f} s while {found['kills']} nodes were "
        f"killed, one every 30 s, and {found['calm_s']:.0f} s without: {found['ratio']:.2f} times as long. "
        f"{found['not_ready']} tasks did not become ready."
    )


def _of_chaos(outcome: str) -> dict[str, Any]:
    return json.loads((DOCS / outcome).read_text())


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, without padding."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)])


VIEWS: Final[dict[str, Callable[[Results], str]]] = {
    "goals": goals,
    "sizing": sizing,
    "packing": partial(sides, "packing"),
    "peers": partial(sides, "peers"),
    "gpu": lambda _: report.markdown(),
    "chaos": partial(chaos, "chaos.json"),
    "chaos-promises": partial(chaos_promises, "chaos.json"),
    "chaos-cluster": partial(chaos, "chaos-cluster.json"),
    "chaos-cluster-promises": partial(chaos_promises, "chaos-cluster.json"),
    "backlog": partial(backlog, "chaos-cluster.json"),
}
