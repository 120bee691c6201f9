"""The conformance kit, as tests run it, and `make conformance`: against a service as `make run` starts it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from serve_app.conformance import report
from serve_app.conformance.check import Check, Outcome, Verdict
from serve_app.conformance.run import Options, run
from support.local_service import LocalService

REPOSITORY: Final = Path(__file__).parents[2]

TUNED: Final = REPOSITORY / "deployments" / "bundled" / "adapters" / "outlined.safetensors"
BASE: Final = "gen-3-image-klein"
"""Of the tuned model."""

KNOWN: Final = frozenset[str]()
"""Sentences that do not hold yet."""


def judged(checks: Sequence[Check], options: Options) -> list[Outcome]:
    async def outcomes() -> list[Outcome]:
        return [outcome async for outcome in run(checks, options)]

    return asyncio.run(outcomes())


def broken(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that fail, but for what is known."""
    return [each for each in outcomes if each.verdict is Verdict.FAILS and each.check.sentence not in KNOWN]


def told(outcomes: Sequence[Outcome]) -> str:
    """What fails, for a person."""
    return "\n".join(report.failures(outcomes))


def main(arguments: Sequence[str]) -> int:
    """Judges a service on its own data and ports. `arguments` go to `gen-serve conformance`, whose exit code it is."""
    command = str(Path(sys.executable).parent / "gen-serve")
    with TemporaryDirectory(prefix="conformance-") as folder:
        service = LocalService(Path(folder), REPOSITORY)
        try:
            service.start()
            key = (Path(folder) / "data" / "key").read_text().strip()
            where = ["--base-url", service.base_url, "--key", key]
            add = [command, "finetunes", "add", str(TUNED), "--base", BASE, *where]
            tuned = subprocess.run(add, check=True, capture_output=True, text=True).stdout.strip()
            where += ["--finetune", f"{BASE}={tuned}"]
            return subprocess.run([command, "conformance", *where, *arguments], check=False).returncode
        finally:
            service.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
