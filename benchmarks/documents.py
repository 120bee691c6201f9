"""Figures in the docs, written between two marks from the published results.

    <!-- figures: NAME -->
    text that VIEWS[NAME] returns
    <!-- end of figures -->

A test renders them again and compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.gpu import report
from benchmarks.harness import MODULES, PUBLISHED, BenchmarkResult, plain, read_all

DOCS: Final = Path(__file__).parents[1] / "docs"
_BLOCK: Final = re.compile(r"(<!-- figures: (?P<view>[a-z-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)

Results: TypeAlias = Mapping[str, BenchmarkResult]


def write(published: Path = PUBLISHED, docs: Path = DOCS) -> list[str]:
    """Updates the figures in the docs. Returns the names of the documents that changed."""
    results, changed = read_all(published), []
    for path in sorted(docs.glob("*.md")):
        before = path.read_text()
        after = fill_blocks(before, results)
        if after != before:
            path.write_text(after)
            changed.append(path.name)
    return changed


def fill_blocks(text: str, results: Results) -> str:
    """Returns the text with every block rendered again. Raises ValueError for a block that names an unknown view."""

    def block(match: re.Match[str]) -> str:
        if match["view"] not in VIEWS:
            raise ValueError(f"no figures {match['view']!r}; there are {', '.join(VIEWS)}")
        return f"{match[1]}\n{VIEWS[match['view']](results).strip()}\n\n{match[3]}"

    return _BLOCK.sub(block, text)


def goals(results: Results) -> str:
    """Renders the goals of all benchmarks, missed ones first, and the machines they were measured on."""
    rows = [
        (goal.name, goal.result, goal.target if goal.met else f"**missed**: {goal.target}", goal.first_set, f"`{name}`")
        for name, result in results.items()
        for goal in result.report.goals
    ]
    machines = dict.fromkeys(
        f"{facts['cores']} cores of {facts['cpu']}, {facts['memory_gib']:g} GiB, Python {facts['python']}, "
        f"torch {facts['versions']['torch']}, ray {facts['versions']['ray']}"
        for facts in (result.machine for result in results.values())
    )
    commits = ", ".join(sorted({each for result in results.values() for each in result.machine["commit"].split(", ")}))
    summary = f"Measured on {'; '.join(machines)}; commits {commits}." if results else ""
    if missing := [f"`{name}`" for name in MODULES if name not in results]:
        summary += f" Not measured yet: {', '.join(missing)}."
    heads = ("what", "measured (95 % interval)", "goal", "first set at", "benchmark")
    return f"{table(heads, sorted(rows, key=lambda row: 'missed' not in row[2]))}\n\n{summary}"


def sizing(results: Results) -> str:
    """Renders the cost of everything around the models, to size a fleet by."""
    metrics, bytes_per_task = results["cost"].report.figures, results["store"].report.figures["bytes_per_task"]
    by_size, by_role = metrics["cpu_ms_per_task"], metrics["cpu_ms_per_task_by_role"]
    names = ("ingress", "dispatcher", "model", "webhooks", "redis")

    def roles(size: str) -> str:
        return ", ".join(f"{role} {plain(by_role[size].get(role, 0.0))}" for role in names)

    rows = [
        ("a submission", f"{plain(metrics['submit_cpu_ms'])} ms of CPU"),
        ("a poll", f"{plain(metrics['poll_cpu_ms'])} ms of CPU"),
        *(
            (f"a task of {size}, moderated, with a webhook", f"{plain(by_size[size])} ms of CPU ({roles(size)})")
            for size in by_size
        ),
        ("a waiting task", f"{plain(bytes_per_task['waiting'])} bytes of Redis"),
        ("a finished task, while it is kept", f"{plain(bytes_per_task['finished'])} bytes of Redis"),
        ("the service at rest", f"{plain(1024 * metrics['memory_gib'])} MiB"),
    ]
    ms = by_role["1024 px"]
    costs = [sum(ms.values()) - ms["model"], *(ms[role] for role in ("dispatcher", "ingress", "webhooks", "redis"))]
    fleet = [
        (str(gpus), str(_RATE * gpus), *(f"{_RATE * gpus * cost / 1000:.1f}" for cost in costs))
        for gpus in (10, 100, 300)
    ]
    heads = ("GPUs", "images/s", "cores besides the models", "dispatchers", "ingress", "webhooks", "Redis")
    summary = (
        f"A GPU that makes {_RATE} images of 1024 px per second needs these cores besides its replica:\n\n"
        f"{table(heads, fleet)}\n\nA dispatcher, an ingress replica, a webhook sender and Redis use at most one core "
        "each. Run as many of the first three as the table has cores, plus one. Redis is the limit, at about "
        f"{1000 / _RATE / ms['redis']:.0f} such GPUs. A million kept tasks take "
        f"{1e6 * bytes_per_task['finished'] / 2**30:.1f} GiB of Redis."
    )
    return f"{table(('', 'takes'), rows)}\n\n{summary}"


_RATE: Final = 3
"""Images per second of a fast GPU."""


def sides(name: str, results: Results) -> str:
    """Renders a row per figure and a column per side."""
    metrics = results[name].report.figures
    rows = [
        (row, *(plain(values[side]) if values.get(side) is not None else "" for side in metrics["sides"]))
        for row, values in metrics["rows"].items()
    ]
    return table(("", *metrics["sides"]), rows)


def rows(name: str, results: Results) -> str:
    """Renders the rows of a result, with a column per field."""
    if name not in results:
        return "Not measured yet."
    records = results[name].report.figures["rows"]
    cells = [
        [("" if value is None else value if isinstance(value, str) else plain(value)) for value in record.values()]
        for record in records
    ]
    return table([key.replace("_", " ") for key in records[0]], cells)


def chaos(outcome: str, _: Results) -> str:
    """Renders the recovery times of each fault from a chaos run's JSON, the slowest first."""
    rows = [
        (fault, str(stats["times"]), f"{stats['p50_s']:.1f} s", f"{stats['max_s']:.1f} s")
        for fault, stats in sorted(_read_chaos(outcome)["faults"].items(), key=lambda each: -each[1]["max_s"])
    ]
    return table(("fault", "times", "recovery, median", "at most"), rows)


def chaos_promises(outcome: str, _: Results) -> str:
    """Renders the tasks of each chaos run and the promises that were broken."""
    rows = [
        (
            run["on"],
            run["promises"][0]["measured"],
            str(len(run["promises"])),
            "; ".join(each["promise"] for each in run["promises"] if not each["kept"]) or "none",
        )
        for run in _read_chaos(outcome)["runs"]
    ]
    return table(("run", "tasks", "promises checked", "broken"), rows)


def backlog(outcome: str, _: Results) -> str:
    """Renders the last part of `make chaos-cluster`: a backlog while nodes are killed."""
    run = _read_chaos(outcome)["backlog"]
    return (
        f"A backlog of {run['tasks']} tasks took {run['with_kills_s']:.0f} s while {run['kills']} nodes were "
        f"killed, one every 30 s, and {run['calm_s']:.0f} s without: {run['ratio']:.2f} times as long. "
        f"{run['not_ready']} tasks did not become ready."
    )


def _read_chaos(outcome: str) -> dict[str, Any]:
    return json.loads((DOCS / outcome).read_text())


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)])


VIEWS: Final[dict[str, Callable[[Results], str]]] = {
    "goals": goals,
    "sizing": sizing,
    "packing": partial(sides, "packing"),
    "peers": partial(sides, "peers"),
    "planner": partial(rows, "planner"),
    "fleet": partial(rows, "fleet"),
    "gpu": lambda _: report.markdown(),
    "chaos": partial(chaos, "chaos.json"),
    "chaos-promises": partial(chaos_promises, "chaos.json"),
    "chaos-cluster": partial(chaos, "chaos-cluster.json"),
    "chaos-cluster-promises": partial(chaos_promises, "chaos-cluster.json"),
    "backlog": partial(backlog, "chaos-cluster.json"),
}
