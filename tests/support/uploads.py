"""Uploads of tuned models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deployments.lora.check import check
from serve_app.finetunes.registry import Refused


def check_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has files checked in this process. In production each has one of its own, which imports torch for seconds."""

    async def run_check(file: Path, size: int, checkpoint: str, revision: str | None, cpu_s: int) -> dict[str, Any]:
        result = await asyncio.to_thread(check, checkpoint, file, revision)
        if "error" in result:
            raise Refused(str(result["error"]))
        return result

    monkeypatch.setattr("serve_app.finetunes.upload.check_file", run_check)
