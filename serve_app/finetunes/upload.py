"""Uploads of LoRA fine-tunes: received, checked against the base, stored."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.accounts.projects import Project
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.finetunes.registry import (
    CheckFailed,
    Finetune,
    FinetuneRegistry,
    ObjectStoreUnreachable,
    Refused,
    Removed,
    TooMany,
    TooSlow,
)

logger = logging.getLogger(__name__)

GRACE_S: Final = 10.0
"""Seconds that an upload may lag behind its rate, at its beginning and in all."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    max_mb: int
    """MiB."""
    receive_s: float
    """For the whole file."""
    min_kb_per_s: float
    """KiB per second, from the beginning to any moment."""

    def time_for(self, size: int) -> float:
        """When more than `size` bytes must have come, in seconds after the beginning."""
        return min(self.receive_s, GRACE_S + size / (self.min_kb_per_s * 1024))


async def save(chunks: AsyncIterator[bytes], file: Path, limits: UploadLimits) -> int:
    """Writes what comes, in a thread. Returns how much. Raises Refused or TooSlow."""
    began = asyncio.get_running_loop().time()
    size = 0
    try:
        async with asyncio.timeout_at(began + limits.time_for(0)) as patience:
            with await asyncio.to_thread(file.open, "wb") as target:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > limits.max_mb * 2**20:
                        raise Refused(f"a tuned model may have at most {limits.max_mb} MiB")
                    await asyncio.to_thread(target.write, chunk)
                    patience.reschedule(began + limits.time_for(size))
    except TimeoutError:
        raise TooSlow(
            "The upload came too slowly: "
            f"it must be whole within {limits.receive_s:g} s, and come at {limits.min_kb_per_s:g} KiB/s or more"
        ) from None
    if size == 0:
        raise Refused("the body is empty: send the safetensors file itself")
    return size


_CHECK: Final = (sys.executable, "-m", "deployments.lora.check")
_PATIENCE: Final = 2
"""Wall-clock seconds per second of processor time, beside those of the start."""
_START_S: Final = 60
_MEMORY_MB: Final = 512
_MEMORY_PER_MB: Final = 4
"""MiB per MiB of the file: its bytes, its tensors, and intermediate results of the largest."""


@dataclass(frozen=True, slots=True)
class FinetuneBase:
    checkpoint: str
    revision: str | None = None
    stock: bool = False
    """True where diffusers' own pipeline serves it, even if a native family could."""


async def check_file(file: Path, size: int, base: FinetuneBase, cpu_s: int) -> dict[str, Any]:
    """Returns its `rank` and `layers`. `size` is its length in bytes. Raises Refused or CheckFailed."""
    memory_mb = _MEMORY_MB + _MEMORY_PER_MB * size // 2**20
    options = ("--cpu-s", str(cpu_s), "--memory-mb", str(memory_mb), *(["--stock"] if base.stock else []))
    process = await asyncio.create_subprocess_exec(
        *(*_CHECK, *options, base.checkpoint, str(file), *([base.revision] if base.revision else [])),
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
    messages = [json.loads(line) for line in output.splitlines()]
    if process.returncode:
        logger.error("the check of a tuned model ended with %d: %s", process.returncode, _tail(errors))
        if not messages:
            raise CheckFailed  # before it came to the file's tensors
        if process.returncode == -signal.SIGXCPU:
            raise Refused(f"its check takes more than {cpu_s} s")
        raise Refused("it is damaged, or its check takes too much memory")
    if "error" in messages[-1]:
        raise Refused(messages[-1]["error"])
    return messages[-1]


def _tail(errors: bytes) -> str:
    return errors.decode(errors="replace")[-2000:]


_CHECKS: Final = 2
"""Checks at a time in one process: each takes a processor, and several times its file in memory."""


class Uploads:
    def __init__(self, registry: FinetuneRegistry, objects: ObjectStore, settings: Settings, catalog: Catalog) -> None:
        self._registry = registry
        self._objects = objects
        self._settings = settings
        self._catalog = catalog
        self._places = Places(settings.finetunes.max_parallel)
        self._checks = asyncio.Semaphore(_CHECKS)

    async def receive(self, chunks: AsyncIterator[bytes], *, name: str, project: Project, endpoint: str) -> Finetune:
        """Takes the file's bytes as they come.

        Raises FinetunesClosed, Removed, or an error of refusals.py; then nothing is kept.
        """
        most = self._settings.finetunes.max_per_project
        if await self._registry.count(project.id) >= most:
            raise TooMany(f"This project may have {most} tuned models; delete one first")
        with self._places.one(project.id, project.organization):
            return await self._receive_file(chunks, name, project.id, endpoint)

    async def _receive_file(self, chunks: AsyncIterator[bytes], name: str, project: str, endpoint: str) -> Finetune:
        chosen = self._settings.finetunes
        limits = UploadLimits(chosen.max_mb, chosen.receive_s, chosen.min_kb_per_s)
        base = self._catalog.endpoints[endpoint]
        with tempfile.TemporaryDirectory(prefix="finetune-") as folder:
            file = Path(folder) / "weights.safetensors"
            size = await save(chunks, file, limits)
            async with self._checks:
                metadata = await check_file(file, size, self._base(base.model), chosen.check_s)
            finetune = await self._registry.begin(name, project, endpoint, base.model)
            try:
                await self._objects.put_file(finetune.key, file, "application/octet-stream")
            except UNREACHABLE as problem:
                await self._registry.remove(finetune)
                raise ObjectStoreUnreachable from problem
        try:
            return await self._registry.finish(finetune, rank=metadata["rank"], layers=metadata["layers"], size=size)
        except Removed:
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
            raise

    async def remove(self, finetune: Finetune) -> None:
        """Tasks that use it and have not begun will end as `Error`. Raises OutOfReach, and may be called again: the
        entry goes last, as nothing else knows where the file is."""
        try:
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
        except UNREACHABLE as problem:
            raise ObjectStoreUnreachable from problem
        await self._registry.remove(finetune)

    def _base(self, name: str) -> FinetuneBase:
        """Returns what has the configuration of a model, and whether diffusers' own pipeline runs it."""
        config = self._catalog.models[name].config(self._settings.model(name))
        if config.config_from:
            return FinetuneBase(config.config_from, None, config.is_generic)
        return FinetuneBase(config.checkpoint, config.revision, config.is_generic)


class Places:
    def __init__(self, places: int) -> None:
        """A project has one of them at a time, an organization half."""
        self._places = places
        self._per_organization = max(1, places // 2)
        self._projects: set[str] = set()
        self._organizations: Counter[str] = Counter()

    @contextmanager
    def one(self, project: str, organization: str) -> Iterator[None]:
        """Raises TooMany."""
        if project in self._projects:
            raise TooMany("This project uploads a tuned model already; try again when that has ended")
        most = self._per_organization
        if self._organizations[organization] >= most:
            raise TooMany(
                f"This organization uploads {most} tuned models already, as many as it may at a time; try again shortly"
            )
        if len(self._projects) >= self._places:
            raise TooMany("Other tuned models are being uploaded; try again shortly")
        self._projects.add(project)
        self._organizations[organization] += 1
        try:
            yield
        finally:
            self._projects.remove(project)
            self._organizations -= Counter((organization,))
