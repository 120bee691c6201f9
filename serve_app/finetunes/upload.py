"""From an uploaded file to a tuned model that may be used: received, checked against its base, stored."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.accounts.projects import Project
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.finetunes.check import checked
from serve_app.finetunes.receiving import Bounds, save
from serve_app.finetunes.refusals import OutOfReach, TooMany
from serve_app.finetunes.registry import Finetune, FinetuneRegistry, Removed

_CHECKS: Final = 2
"""At a time in one process: each is a processor's work, and several times its file in memory."""


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

        Raises ProjectClosed, Removed, or a kind of what is in refusals.py; then nothing is kept.
        """
        most = self._settings.finetunes.max_per_project
        if await self._registry.count(project.id) >= most:
            raise TooMany(f"This project may have {most} tuned models; delete one first")
        with self._places.one(project.id, project.organization):
            return await self._received(chunks, name, project.id, endpoint)

    async def _received(self, chunks: AsyncIterator[bytes], name: str, project: str, endpoint: str) -> Finetune:
        chosen = self._settings.finetunes
        bounds = Bounds(chosen.max_mb, chosen.receive_s, chosen.min_kb_per_s)
        base = self._catalog.endpoints[endpoint]
        with tempfile.TemporaryDirectory(prefix="finetune-") as folder:
            file = Path(folder) / "weights.safetensors"
            size = await save(chunks, file, bounds)
            async with self._checks:
                found = await checked(file, size, *self._checkpoint(base.model), chosen.check_s)
            finetune = await self._registry.begin(name, project, endpoint, base.model)
            try:
                await self._objects.put_file(finetune.key, file, "application/octet-stream")
            except UNREACHABLE as problem:
                await self._registry.remove(finetune)
                raise OutOfReach from problem
        try:
            return await self._registry.finish(finetune, rank=found["rank"], layers=found["layers"], size=size)
        except Removed:
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
            raise

    async def remove(self, finetune: Finetune) -> None:
        """Tasks that use it and have not begun will end as `Error`. Raises OutOfReach, and may be called again: the
        entry goes last, as nothing else knows where the file is."""
        try:
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
        except UNREACHABLE as problem:
            raise OutOfReach from problem
        await self._registry.remove(finetune)

    def _checkpoint(self, name: str) -> tuple[str, str | None]:
        """Of a model, and its revision: that which the settings name in place of the catalog's has none."""
        model = self._catalog.models[name]
        override = self._settings.model(name).checkpoint
        return (override, None) if override else (model.checkpoint, model.revision)


class Places:
    def __init__(self, places: int) -> None:
        """A project has one of them at a time, an organization half."""
        self._places = places
        self._of_organization = max(1, places // 2)
        self._projects: set[str] = set()
        self._organizations: Counter[str] = Counter()

    @contextmanager
    def one(self, project: str, organization: str) -> Iterator[None]:
        """Raises TooMany."""
        if project in self._projects:
            raise TooMany("This project uploads a tuned model already; try again when that has ended")
        most = self._of_organization
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
