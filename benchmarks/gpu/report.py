"""Report of the GPU check: merges the figures of all processes, checks tolerances, renders and publishes them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

FILE: Final = "gpu-check.json"
PUBLISHED: Final = Path(__file__).parents[1] / "results"

Results: TypeAlias = Mapping[str, Any]


class Expected(NamedTuple):
    """Range in which a figure was expected on an H100 with 80 GB, before any was measured."""

    phase: str
    part: str
    figure: str
    low: float
    high: float


EXPECTED: Final = (
    Expected("z-image", "step of 1 x 1024 px", "ms", 120, 200),
    Expected("qwen-image", "step of 1 x 1024 px", "ms", 160, 260),
    Expected("wan", "step of 832 x 480 px, 81 frames", "ms", 3300, 5000),
    Expected("klein-4b", "row of 8 x 1024 px", "ms", 560, 650),
    Expected("klein-4b", "row of 1 x 1024 px", "ms", 68, 80),
    Expected("klein-4b", "row of 8 x 512 px", "ms", 170, 200),
    Expected("klein-4b", "row of 8 x 1024 px", "thread_cpu_share", 0.9, 1.05),
    Expected("klein-4b", "decode 1024 px", "ms", 25, 45),
    Expected("klein-4b", "decode 2048 px", "gb", 6, 7),
    Expected("klein-4b", "decode 4096 px", "ms", 700, 2000),
    Expected("compiled", "1 x 1024 x 1024 px", "ms", 52, 60),
    Expected("adapters", "load, nothing beside", "s", 0, 0.5),
    Expected("adapters", "load beside steps", "s", 5, 60),
    Expected("kernels", "attention of 8 x 1024 px: varlen", "tflops", 300, 380),
    Expected("kernels", "attention of 8 x 1024 px: xformers", "tflops", 285, 400),
    Expected("kernels", "attention of 8 x 1024 px: CUDNN_ATTENTION", "tflops", 500, 650),
    Expected("fp8", "linear layers of all blocks", "alone_share", 0.7, 0.9),
    Expected("fp8", "linear layers of all blocks", "row_share", 0.9, 1.1),
)


def empty(device: str, *, tiny: bool) -> dict[str, Any]:
    facts = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": os.environ.get("COMMIT") or _commit()}
    return {"device": device, "tiny": tiny, **facts, "phases": {}, "failed": {}, "skipped": {}}


def merge(results: dict[str, Any], file: Path) -> None:
    """Adds the figures of one process, if it wrote any."""
    if file.exists():
        for section, entries in json.loads(file.read_text()).items():
            results[section] |= entries


def wrong(results: Results) -> list[str]:
    """Returns the comparisons that exceed their tolerance."""
    return [f"{phase}: {part}" for phase, part, metrics in _parts(results) if not metrics.get("passed", True)]


def table(results: Results) -> str:
    """Renders plain text: every figure, the expected ranges, and what failed or was skipped."""
    lines = [_title(results)]
    for phase, part, metrics in _parts(results):
        verdict = {True: "within tolerance: ", False: "NOT WITHIN TOLERANCE: ", None: ""}[metrics.get("passed")]
        values = [f"{name} {value}" for name, value in metrics.items() if name != "passed"]
        lines.append(f"{phase:18} {part:48} {verdict}{', '.join(values)}")
    for figure, expected, measured, outcome in _expectations(results):
        lines.append(f"expected  {figure:66} {expected:13} {measured:12} {outcome}")
    for section in ("failed", "skipped"):
        lines += [f"{section:9} {part}: {why}" for part, why in results[section].items()]
    comparisons = sum("passed" in metrics for _, _, metrics in _parts(results))
    lines.append(f"{comparisons - len(wrong(results))} of {comparisons} comparisons within tolerance")
    return "\n".join([*lines, f"{len(results['failed'])} failed, {len(results['skipped'])} skipped", ""])


def publish(folder: Path, published: Path = PUBLISHED) -> str:
    """Copies the figures to the published ones and returns the new file's name, made from the card's.

    Exits when the figures are of a CPU or a tiny run, or a comparison exceeded its tolerance.
    """
    results = json.loads((folder / FILE).read_text())
    card = results["phases"].get("machine", {}).get("card", {}).get("card")
    if results["tiny"] or results["device"] == "cpu" or card is None:
        raise SystemExit("error: the run was tiny or not on a GPU: its figures mean nothing")
    if bad := wrong(results):
        raise SystemExit(f"error: not within tolerance: {'; '.join(bad)}")
    target = published / f"gpu-{re.sub(r'[^a-z0-9]+', '-', card.lower()).strip('-')}.json"
    target.write_text(json.dumps(results, indent=1) + "\n")
    return target.name


def markdown(published: Path = PUBLISHED) -> str:
    """Renders the newest published figures for the docs."""
    runs = [json.loads(file.read_text()) for file in published.glob("gpu-*.json")]
    if not runs:
        return "Nothing was measured on a GPU yet."
    results = max(runs, key=lambda run: run["date"])
    rates = [
        (f"{phase}: {part}", f"{metrics['ms']:g}", f"{metrics['steps_per_s']:g}", f"{metrics.get('gb', '')}")
        for phase, part, metrics in _parts(results)
        if "steps_per_s" in metrics
    ]
    steps = [("steps", "ms", "image steps per second", "GB beside weights"), ("---",) * 4, *rates]
    expectations = [("figure", "expected on an H100", "measured", ""), ("---",) * 4, *_expectations(results)]
    tables = ["\n".join(f"| {' | '.join(row)} |" for row in rows) for rows in (steps, expectations)]
    comparisons = sum("passed" in metrics for _, _, metrics in _parts(results))
    return "\n\n".join([f"{_title(results)} All {comparisons} comparisons were within tolerance.", *tables])


def _parts(results: Results) -> Iterator[tuple[str, str, Results]]:
    for phase, parts in results["phases"].items():
        for part, metrics in parts.items():
            yield phase, part, metrics


def _expectations(results: Results) -> list[tuple[str, str, str, str]]:
    rows = []
    for phase, part, figure, low, high in EXPECTED:
        value = results["phases"].get(phase, {}).get(part, {}).get(figure)
        measured = (
            ("not measured", "") if value is None else (f"{value:g}", "held" if low <= value <= high else "not held")
        )
        rows.append((f"{phase}: {part}, {figure}", f"{low:g} to {high:g}", *measured))
    return rows


def _title(results: Results) -> str:
    card = results["phases"].get("machine", {}).get("card", {})
    versions = [f"{name} {card[name]}" for name in ("torch", "diffusers", "transformers") if name in card]
    device = ", ".join([card.get("card", results["device"]), *versions])
    return f"{device}; commit {results['commit']}, {results['date'][:10]}."


def _commit() -> str | None:
    """Returns None outside of a repository."""
    try:
        command = ["git", "rev-parse", "--short=10", "HEAD"]
        return subprocess.run(command, cwd=PUBLISHED, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
