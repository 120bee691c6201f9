"""Checks of uploaded adapters."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deployments.lora.check import check
from serve_app.finetunes.registry import InvalidAdapter
from serve_app.finetunes.upload import AdapterShape, FinetuneBase


def check_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks files in this process. The service starts a process for each, which takes seconds to import torch."""

    async def run_check(file: Path, size: int, base: FinetuneBase, cpu_s: int) -> AdapterShape:
        result = await asyncio.to_thread(check, base.checkpoint, file, base.revision, stock=base.stock)
        if "error" in result:
            raise InvalidAdapter(str(result["error"]))
        return AdapterShape(int(result["rank"]), int(result["layers"]))

    monkeypatch.setattr("serve_app.finetunes.upload.check_file", run_check)
