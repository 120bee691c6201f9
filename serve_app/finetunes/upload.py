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
from typing import Final

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.accounts.projects import Project
from serve_app.config.catalog import Catalog
from serve_app.config.sections import FinetuneSettings
from serve_app.config.settings import Settings
from serve_app.finetunes.registry import (
    CheckFailed,
    Finetune,
    FinetuneDeleted,
    FinetuneRegistry,
    InvalidAdapter,
    ObjectStoreUnreachable,
    TooManyFinetunes,
    UploadTooSlow,
)

logger = logging.getLogger(__name__)

GRACE_S: Final = 10.0
"""Seconds that an upload may lag behind its minimum speed."""


def deadline_s(size: int, limits: FinetuneSettings) -> float:
    """Returns the seconds after the start by which more than `size` bytes must have come."""
    return min(limits.receive_s, GRACE_S + size / (limits.min_kb_per_s * 1024))


async def save(chunks: AsyncIterator[bytes], file: Path, limits: FinetuneSettings) -> int:
    """Writes the chunks to a file and returns its size. Raises InvalidAdapter or UploadTooSlow."""
    started_at = asyncio.get_running_loop().time()
    size = 0
    try:
        async with asyncio.timeout_at(started_at + deadline_s(0, limits)) as timeout:
            with await asyncio.to_thread(file.open, "wb") as target:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > limits.max_mb * 2**20:
                        raise InvalidAdapter(f"a tuned model may have at most {limits.max_mb} MiB")
                    await asyncio.to_thread(target.write, chunk)
                    timeout.reschedule(started_at + deadline_s(size, limits))
    except TimeoutError:
        raise UploadTooSlow(
            "The upload came too slowly: "
            f"it must be whole within {limits.receive_s:g} s, and come at {limits.min_kb_per_s:g} KiB/s or more"
        ) from None
    if size == 0:
        raise InvalidAdapter("the body is empty: send the safetensors file itself")
    return size


_CHECK: Final = (sys.executable, "-m", "deployments.lora.check")
_CLOCK_PER_CPU: Final = 2
"""Seconds on the clock per second of CPU time, besides those of the start."""
_START_S: Final = 60
_LOGGED_CHARS: Final = 2000
_MEMORY_MB: Final = 512
_MEMORY_PER_MB: Final = 4
"""MiB per MiB of the file: its bytes, its tensors, and intermediate results of the largest tensor."""


@dataclass(frozen=True, slots=True)
class FinetuneBase:
    checkpoint: str
    revision: str | None = None
    stock: bool = False
    """True if diffusers' own pipeline serves the base, even if a native family could."""


@dataclass(frozen=True, slots=True)
class AdapterShape:
    rank: int
    layers: int


async def check_file(file: Path, size: int, base: FinetuneBase, cpu_s: int) -> AdapterShape:
    """Checks a file of `size` bytes in a process of its own. Raises InvalidAdapter or CheckFailed."""
    memory_mb = _MEMORY_MB + _MEMORY_PER_MB * size // 2**20
    options = ("--cpu-s", str(cpu_s), "--memory-mb", str(memory_mb), *(["--stock"] if base.stock else []))
    process = await asyncio.create_subprocess_exec(
        *(*_CHECK, *options, base.checkpoint, str(file), *([base.revision] if base.revision else [])),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_START_S + _CLOCK_PER_CPU * cpu_s):
            output, errors = await process.communicate()
    except TimeoutError:
        raise CheckFailed from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    messages = [json.loads(line) for line in output.splitlines()]
    if process.returncode:
        stderr = errors.decode(errors="replace")[-_LOGGED_CHARS:]
        logger.error("the check of a tuned model ended with %d: %s", process.returncode, stderr)
        if not messages:
            raise CheckFailed  # it had not read the file's tensors yet
        if process.returncode == -signal.SIGXCPU:
            raise InvalidAdapter(f"its check takes more than {cpu_s} s")
        raise InvalidAdapter("it is damaged, or its check takes too much memory")
    if "error" in messages[-1]:
        raise InvalidAdapter(messages[-1]["error"])
    return AdapterShape(messages[-1]["rank"], messages[-1]["layers"])


_MAX_CHECKS: Final = 2
"""Maximum of concurrent checks: each takes a CPU, and several times its file in memory."""


class FinetuneUploads:
    def __init__(self, registry: FinetuneRegistry, objects: ObjectStore, settings: Settings, catalog: Catalog) -> None:
        self._registry = registry
        self._objects = objects
        self._settings = settings
        self._catalog = catalog
        self._slots = UploadSlots(settings.finetunes.max_parallel)
        self._checks = asyncio.Semaphore(_MAX_CHECKS)

    async def receive(self, chunks: AsyncIterator[bytes], *, name: str, project: Project, endpoint: str) -> Finetune:
        """Receives, checks and stores a file. Raises an error of `finetunes/registry.py`; then it stores nothing."""
        limit = self._settings.finetunes.max_per_project
        if await self._registry.count(project.id) >= limit:
            raise TooManyFinetunes(f"This project may have {limit} tuned models; delete one first")
        with self._slots.acquire(project.id, project.organization):
            return await self._receive_file(chunks, name, project.id, endpoint)

    async def _receive_file(self, chunks: AsyncIterator[bytes], name: str, project: str, endpoint: str) -> Finetune:
        limits, base = self._settings.finetunes, self._catalog.endpoints[endpoint]
        with tempfile.TemporaryDirectory(prefix="finetune-") as folder:
            file = Path(folder) / "weights.safetensors"
            size = await save(chunks, file, limits)
            async with self._checks:
                shape = await check_file(file, size, self._base(base.model), limits.check_s)
            finetune = await self._registry.begin(name, project, endpoint, base.model)
            try:
                await self._objects.put_file(finetune.key, file, "application/octet-stream")
            except UNREACHABLE as problem:
                await self._registry.remove(finetune)
                raise ObjectStoreUnreachable from problem
        try:
            return await self._registry.finish(finetune, rank=shape.rank, layers=shape.layers, size=size)
        except FinetuneDeleted:
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
            raise

    async def remove(self, finetune: Finetune) -> None:
        """Deletes the file, then the record, which names the file. Raises ObjectStoreUnreachable; then repeat it."""
        try:
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
        except UNREACHABLE as problem:
            raise ObjectStoreUnreachable from problem
        await self._registry.remove(finetune)

    def _base(self, name: str) -> FinetuneBase:
        """Returns the base of a model's adapters, against which files are checked."""
        config = self._catalog.models[name].config(self._settings.model(name))
        if config.config_from:
            return FinetuneBase(config.config_from, None, config.is_generic)
        return FinetuneBase(config.checkpoint, config.revision, config.is_generic)


class UploadSlots:
    """Concurrent uploads: one per project, half of the slots per organization."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._per_organization = max(1, slots // 2)
        self._projects: set[str] = set()
        self._organizations: Counter[str] = Counter()

    @contextmanager
    def acquire(self, project: str, organization: str) -> Iterator[None]:
        """Raises TooManyFinetunes."""
        if project in self._projects:
            raise TooManyFinetunes("This project uploads a tuned model already; try again when that has ended")
        limit = self._per_organization
        if self._organizations[organization] >= limit:
            raise TooManyFinetunes(
                f"This organization uploads {limit} tuned models already, as many as it may at a time; "
                "try again shortly"
            )
        if len(self._projects) >= self._slots:
            raise TooManyFinetunes("Other tuned models are being uploaded; try again shortly")
        self._projects.add(project)
        self._organizations[organization] += 1
        try:
            yield
        finally:
            self._projects.remove(project)
            self._organizations -= Counter((organization,))
