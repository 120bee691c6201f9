"""Uploads of tuned models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deployments.lora.check import check
from serve_app.finetunes.registry import Refused
from serve_app.finetunes.upload import FinetuneBase


def check_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has files checked in this process. In production each has one of its own, which imports torch for seconds."""

    async def run_check(file: Path, size: int, base: FinetuneBase, cpu_s: int) -> dict[str, Any]:
        result = await asyncio.to_thread(check, base.checkpoint, file, base.revision, stock=base.stock)
        if "error" in result:
            raise Refused(str(result["error"]))
        return result

    monkeypatch.setattr("serve_app.finetunes.upload.check_file", run_check)
