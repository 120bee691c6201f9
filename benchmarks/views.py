"""Published figures in Markdown, as the docs have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks import suite
from benchmarks.report import plain
from benchmarks.results import Result

Results: TypeAlias = Mapping[str, Result]

_DOCS: Final = Path(__file__).parents[1] / "docs"


def goals(found: Results) -> str:
    """Every goal of every benchmark: those that are missed first, each with what was measured."""
    rows = [
        ("missed" if not target.met else "met", target.name, target.found, target.goal, f"`{result.command}`")
        for result in found.values()
        for target in result.targets
    ]
    missed_first = sorted(rows, key=lambda row: row[0] == "met")
    waiting = [f"`{name}`" for name in suite.MODULES if name not in found]
    told = f"\n\nNot measured yet: {', '.join(waiting)}." if waiting else ""
    return table(("", "what", "measured (95 % interval)", "goal", "command"), missed_first) + told


def where(found: Results) -> str:
    """On what, and when."""
    said = {
        f"{facts['cores']} cores of {facts['cpu']}, {facts['memory_gib']:g} GiB, Python {facts['python']}, "
        f"{', '.join(f'{name} {version}' for name, version in facts['versions'].items())}"
        for facts in (result.machine for result in found.values())
    }
    commits = sorted({f"{result.machine['commit']} ({result.machine['date']})" for result in found.values()})
    busy = sorted(result.name for result in found.values() if result.others["busy"])
    lines = [f"Measured on {'; '.join(sorted(said))}; commit {', '.join(commits)}."]
    if busy:
        lines.append(f"Others used the machine, too, during {', '.join(busy)}: trust those figures less.")
    return " ".join(lines)


def batching(found: Results) -> str:
    cells = found["batching"].figures["cells"]
    batches = [str(batch) for batch in found["batching"].figures["batches"]]
    rows = [
        (
            cell["family"],
            str(cell["size"]),
            *(f"{cell['batches'][batch]['denoising_pictures_per_s']:.3g}" for batch in batches),
            str(cell["learned_batch"]),
            f"{cell['kept_at_learned_batch']:.2f}",
        )
        for cell in cells
    ]
    headings = ("checkpoint", "px", *(f"batch {batch}" for batch in batches), "learned", "kept")
    return table(headings, rows) + _plot("batching")


def packing(found: Results) -> str:
    """Pictures per second of the sides, and how many were in time."""
    figures = found["packing"].figures
    sides = ("one", "static", "engine")
    rows = [
        *(
            (f"saturated, {name}, {dtype}, pictures/s", *(plain(rates[side]["median"]) for side in sides))
            for dtype, of_mixes in figures["saturated"].items()
            for name, rates in of_mixes.items()
        ),
        *(
            (f"in time at load {load}, pictures", *(plain(good[side]) for side in sides))
            for load, good in figures["goodput"].items()
        ),
    ]
    repeated, found_again = figures["repeated"]["encode_ms"], figures["repeated"]["hit_rate"]
    shares = " and ".join(f"{share:.0%} of {cache}" for cache, share in found_again.items())
    told = (
        f"Encoding a picture whose words and pictures came before takes {plain(repeated['kept']['median'])} ms, and "
        f"{plain(repeated['not']['median'])} ms where nothing is kept; {shares} were found."
    )
    return table(("", "one at a time", "static batches", "engine"), rows) + "\n\n" + told


def sizing(found: Results) -> str:
    """What everything around the models takes, for whoever counts machines."""
    of_task = found["tasks"].figures["cpu_ms_per_task"]["median"]
    by_role = found["tasks"].figures["cpu_ms_per_task_by_role"]
    of_poll, of_submit = (found["ingress"].figures[kind]["service"] for kind in ("poll", "submit"))
    bytes_of = found["store"].figures["bytes_per_task"]
    cores = found["ingress"].machine["cores"]
    roles = ", ".join(f"{role} {plain(by_role[role]['median'])}" for role in ("ingress", "dispatcher", "redis"))
    rows = [
        ("a submission", f"{plain(of_submit['cpu_ms'])} ms of CPU"),
        (
            "a poll",
            f"{plain(of_poll['cpu_ms'])} ms of CPU; {plain(of_poll['requests_per_s'])} a second on {cores} cores",
        ),
        ("a whole task, judged and with a webhook", f"{plain(of_task)} ms of CPU ({roles})"),
        ("a waiting task", f"{plain(bytes_of['waiting'])} bytes of Redis"),
        ("an ended one, while it is kept", f"{plain(bytes_of['finished'])} bytes of Redis"),
        ("the service at rest", f"{plain(sum(found['rest'].figures['memory_mib'].values()))} MiB"),
    ]
    tasks, polls = 20, 10
    busy = tasks * (of_task + polls * of_poll["cpu_ms"]) / 1000
    kept = 1e6 * bytes_of["finished"] / 2**30
    told = (
        f"So {tasks} tasks a second, each polled {polls} times, keep {busy:.1f} of a core busy, and a million kept "
        f"tasks {kept:.1f} GiB of Redis."
    )
    return table(("", "takes"), rows) + "\n\n" + told


def clips(found: Results) -> str:
    rows = [
        (name, f"{of['seconds']:.1f} s", f"{of['peak_gib']:.2f} GiB", f"{of['megabytes']:.1f} MB")
        for name, of in found["clips"].figures.items()
    ]
    return table(("video", "made in", "peak memory of the process", "file"), rows)


def chaos(outcome: str, _: Results) -> str:
    """From that JSON of `make chaos` or `make chaos-cluster`: what each fault did, the slowest recovery first."""
    faults = json.loads((_DOCS / outcome).read_text())["faults"]
    rows = [
        (fault, str(of["times"]), f"{of['p50_s']:.1f} s", f"{of['max_s']:.1f} s", str(of["lost"]), str(of["doubled"]))
        for fault, of in sorted(faults.items(), key=lambda each: -each[1]["max_s"])
    ]
    return table(("fault", "times", "recovery, median", "at most", "lost", "doubled"), rows)


def peers(found: Results) -> str:
    """Where the service is behind comes first, as the result has it."""
    measured = found["peers"].figures
    behind = {each["name"]: each["times"] for each in measured["behind"]}
    rows = [
        (
            f"{row['name']}, {row['unit']}" if row["unit"] else row["name"],
            *(plain(row["sides"][side]["median"]) if side in row["sides"] else "" for side in measured["sides"]),
            "" if row["name"] not in behind else f"{behind[row['name']]:.2f}x" if behind[row["name"]] else "∞",
        )
        for row in measured["rows"]
    ]
    return table(("", *measured["sides"], "behind"), rows) + _plot("peers")


def chaos_promises(outcome: str, _: Results) -> str:
    """What they look at in the end, and what they found."""
    rows = [
        (run["on"], *_found(promise))
        for run in json.loads((_DOCS / outcome).read_text())["runs"]
        for promise in run["promises"]
    ]
    return table(("", "promise", "measured", ""), rows)


def backlog(outcome: str, _: Results) -> str:
    """What `make chaos-cluster` does last."""
    found = json.loads((_DOCS / outcome).read_text())["backlog"]
    return (
        f"A backlog of {found['tasks']} tasks took {found['with_kills_s']:.0f} s while {found['kills']} nodes were "
        f"killed, one every 30 s, and {found['calm_s']:.0f} s without: {found['ratio']:.2f} times as long. "
        f"{found['not_ready']} tasks did not become ready."
    )


def _found(promise: Mapping[str, Any]) -> tuple[str, str, str]:
    return promise["promise"], promise["measured"], "kept" if promise["kept"] else "BROKEN"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, without padding."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)])


def _plot(name: str) -> str:
    return f"\n\n![The same, drawn](../benchmarks/results/{name}.png)"
