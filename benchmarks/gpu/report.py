"""The figures of all processes: put together, held against tolerances, shown, and taken into the docs."""

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

Found: TypeAlias = Mapping[str, Any]


class Expected(NamedTuple):
    """What was foreseen of a figure before any was measured, for an H100 of 80 GB."""

    phase: str
    part: str
    figure: str
    low: float
    high: float


EXPECTED: Final = (
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


def merge(found: dict[str, Any], file: Path) -> None:
    """Puts in what one process wrote, if it came so far."""
    if file.exists():
        for kind, more in json.loads(file.read_text()).items():
            found[kind] |= more


def wrong(found: Found) -> list[str]:
    """Comparisons that are not within their tolerance."""
    return [f"{phase}: {part}" for phase, part, figures in _parts(found) if not figures.get("passed", True)]


def table(found: Found) -> str:
    """As plain text: every figure, what was expected, what is wrong, failed, or left out."""
    lines = [_title(found)]
    for phase, part, figures in _parts(found):
        verdict = {True: "within tolerance: ", False: "NOT WITHIN TOLERANCE: ", None: ""}[figures.get("passed")]
        shown = [f"{name} {value}" for name, value in figures.items() if name != "passed"]
        lines.append(f"{phase:18} {part:48} {verdict}{', '.join(shown)}")
    for what, expected, measured, held in _held(found):
        lines.append(f"expected  {what:66} {expected:13} {measured:12} {held}")
    for kind in ("failed", "skipped"):
        lines += [f"{kind:9} {part}: {why}" for part, why in found[kind].items()]
    compared = sum("passed" in figures for _, _, figures in _parts(found))
    lines.append(f"{compared - len(wrong(found))} of {compared} comparisons within tolerance")
    return "\n".join([*lines, f"{len(found['failed'])} failed, {len(found['skipped'])} left out", ""])


def publish(folder: Path, published: Path = PUBLISHED) -> list[str]:
    """Puts the figures among the published ones, by the name of the card, and writes the docs anew; what was written.

    Exits for figures that mean nothing, or that are of wrong results.
    """
    from benchmarks import documents

    found = json.loads((folder / FILE).read_text())
    card = found["phases"].get("machine", {}).get("card", {}).get("card")
    if found["tiny"] or found["device"] == "cpu" or card is None:
        raise SystemExit("error: only tried, or not on a GPU: the figures mean nothing")
    if bad := wrong(found):
        raise SystemExit(f"error: not within tolerance: {'; '.join(bad)}")
    target = published / f"gpu-{re.sub(r'[^a-z0-9]+', '-', card.lower()).strip('-')}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return [target.name, *documents.write(published)]


def markdown(published: Path = PUBLISHED) -> str:
    """The newest of the published figures, for the docs."""
    every = [json.loads(file.read_text()) for file in published.glob("gpu-*.json")]
    if not every:
        return "Nothing was measured on a GPU yet."
    found = max(every, key=lambda each: each["date"])
    rates = [
        (f"{phase}: {part}", f"{figures['ms']:g}", f"{figures['steps_per_s']:g}", f"{figures.get('gb', '')}")
        for phase, part, figures in _parts(found)
        if "steps_per_s" in figures
    ]
    steps = [("steps", "ms", "pictures' steps a second", "GB beside weights"), ("---",) * 4, *rates]
    held = [("figure", "expected of an H100", "measured", ""), ("---",) * 4, *_held(found)]
    tables = ["\n".join(f"| {' | '.join(row)} |" for row in rows) for rows in (steps, held)]
    compared = sum("passed" in figures for _, _, figures in _parts(found))
    return "\n\n".join([f"{_title(found)} All {compared} comparisons were within tolerance.", *tables])


def _parts(found: Found) -> Iterator[tuple[str, str, Found]]:
    for phase, parts in found["phases"].items():
        for part, figures in parts.items():
            yield phase, part, figures


def _held(found: Found) -> list[tuple[str, str, str, str]]:
    rows = []
    for phase, part, figure, low, high in EXPECTED:
        value = found["phases"].get(phase, {}).get(part, {}).get(figure)
        measured = (
            ("not measured", "") if value is None else (f"{value:g}", "held" if low <= value <= high else "not held")
        )
        rows.append((f"{phase}: {part}, {figure}", f"{low:g} to {high:g}", *measured))
    return rows


def _title(found: Found) -> str:
    said = found["phases"].get("machine", {}).get("card", {})
    versions = [f"{name} {said[name]}" for name in ("torch", "diffusers", "transformers") if name in said]
    return (
        f"{', '.join([said.get('card', found['device']), *versions])}; commit {found['commit']}, {found['date'][:10]}."
    )


def _commit() -> str | None:
    """None outside of a repository."""
    try:
        asked = ["git", "rev-parse", "--short=10", "HEAD"]
        return subprocess.run(asked, cwd=PUBLISHED, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
