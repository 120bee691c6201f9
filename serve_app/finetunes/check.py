"""Has an uploaded file checked against its base: by a process of its own, which may take so much and no more."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any, Final

from serve_app.finetunes.refusals import CheckFailed, Refused

logger = logging.getLogger(__name__)

_CHECK: Final = (sys.executable, "-m", "deployments.adapters.check")
_PATIENCE: Final = 2
"""So many times the seconds of a processor it may take on the clock, beside those of its start."""
_START_S: Final = 60
_MEMORY_MB: Final = 512
_MEMORY_PER_MB: Final = 4
"""Beside what every check needs: the file as it was read, its tensors, and what is computed of the largest."""


async def checked(file: Path, size: int, checkpoint: str, revision: str | None, cpu_s: int) -> dict[str, Any]:
    """Its `rank` and `layers`. `size` is its length in bytes. Raises Refused or CheckFailed."""
    memory_mb = _MEMORY_MB + _MEMORY_PER_MB * size // 2**20
    bounds = ("--cpu-s", str(cpu_s), "--memory-mb", str(memory_mb))
    process = await asyncio.create_subprocess_exec(
        *(*_CHECK, *bounds, checkpoint, str(file), *([revision] if revision else [])),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_START_S + _PATIENCE * cpu_s):
            output, errors = await process.communicate()
    except TimeoutError:
        raise CheckFailed from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    told = [json.loads(line) for line in output.splitlines()]
    if process.returncode:
        logger.error("the check of a tuned model ended with %d: %s", process.returncode, _end_of(errors))
        if not told:
            raise CheckFailed  # before it came to the file's tensors
        if process.returncode == -signal.SIGXCPU:
            raise Refused(f"its check takes more than {cpu_s} s")
        raise Refused("it is damaged, or its check takes too much memory")
    if "error" in told[-1]:
        raise Refused(told[-1]["error"])
    return told[-1]


def _end_of(errors: bytes) -> str:
    return errors.decode(errors="replace")[-2000:]
