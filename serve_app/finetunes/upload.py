"""From an uploaded file to a tuned model that may be used: received, checked against its base, stored."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from deployments.contract.objects import ObjectStore
from serve_app.config.catalog import Catalog, Endpoint
from serve_app.config.settings import Settings
from serve_app.finetunes.registry import Finetune, FinetuneRegistry, Removed

logger = logging.getLogger(__name__)

_CHECK_S = 120
_PARALLEL = 2
"""Uploads at a time in one process: each is a file on its disk, and a check that reads it."""


class Refused(ValueError):
    """The file is no tuned model of the base. Its text says why, fit for the client."""


class CheckFailed(Exception):
    """Nothing can be said of the file now: the base's description is out of reach, say."""


class TooMany(Exception):
    """The project has as many tuned models as it may, or this process is busy with others' uploads."""


class Uploads:
    def __init__(self, registry: FinetuneRegistry, objects: ObjectStore, settings: Settings, catalog: Catalog) -> None:
        self._registry = registry
        self._objects = objects
        self._settings = settings
        self._catalog = catalog
        self._under_way = 0

    async def receive(self, chunks: AsyncIterator[bytes], *, name: str, project: str, endpoint: str) -> Finetune:
        """Takes the file's bytes as they come.

        Raises TooMany, Refused, CheckFailed, ProjectClosed or Removed; then nothing is kept.
        """
        most = self._settings.finetunes.max_per_project
        if await self._registry.count(project) >= most:
            raise TooMany(f"This project may have {most} tuned models; delete one first")
        if self._under_way >= _PARALLEL:
            raise TooMany("Other tuned models are being uploaded; try again shortly")
        self._under_way += 1
        try:
            return await self._received(chunks, name, project, endpoint)
        finally:
            self._under_way -= 1

    async def _received(self, chunks: AsyncIterator[bytes], name: str, project: str, endpoint: str) -> Finetune:
        base = self._catalog.endpoints[endpoint]
        with tempfile.TemporaryDirectory(prefix="finetune-") as folder:
            file = Path(folder) / "weights.safetensors"
            size = await _save(chunks, file, self._settings.finetunes.max_mb * 2**20)
            found = await self._check(file, base)
            finetune = await self._registry.begin(name, project, endpoint, base.model)
            await self._objects.put_file(finetune.key, file, "application/octet-stream")
        try:
            return await self._registry.finish(finetune, rank=found["rank"], layers=found["layers"], size=size)
        except Removed:
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
            raise

    async def remove(self, finetune: Finetune) -> None:
        """Tasks that use it and have not begun will end as `Error`."""
        await self._registry.remove(finetune)
        await self._objects.delete_prefix(f"finetunes/{finetune.id}")

    async def _check(self, file: Path, base: Endpoint) -> dict[str, Any]:
        """Asks a process of its own, so that this one stays free of torch."""
        model = self._catalog.models[base.model]
        override = self._settings.model(base.model).checkpoint
        revision = [] if override or not model.revision else [model.revision]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deployments.adapters.check", override or model.checkpoint, str(file), *revision),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_CHECK_S):
                output, errors = await process.communicate()
        except TimeoutError:
            raise CheckFailed from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            logger.error("the check of a tuned model failed: %s", errors.decode(errors="replace")[-2000:])
            raise CheckFailed
        verdict = json.loads(output)
        if "error" in verdict:
            raise Refused(verdict["error"])
        return verdict


async def _save(chunks: AsyncIterator[bytes], file: Path, limit: int) -> int:
    """Writes what comes, in a thread. Returns how much."""
    size = 0
    with await asyncio.to_thread(file.open, "wb") as target:
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise Refused(f"a tuned model may have at most {limit // 2**20} MiB")
            await asyncio.to_thread(target.write, chunk)
    if size == 0:
        raise Refused("the body is empty: send the safetensors file itself")
    return size
