"""Projects, their changes, and the lines of changes in the audit log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from redis.asyncio import Redis
from support.redis_dump import audit_lines as lines
from support.redis_dump import dump_keys

from serve_app.accounts import projects as module
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.projects import Project, ProjectStore


async def test_project_is_created_once_for_parallel_requests(
    projects: ProjectStore, audit: AuditLog, redis: Redis, prefix: str
) -> None:
    assert await projects.find("p") is None
    names = [f"organization-{n}" for n in range(20)]
    created = await asyncio.gather(*(projects.create("p", name, "ada") for name in names))
    assert created.count(True) == 1
    owner = names[created.index(True)]
    before = await dump_keys(redis, prefix)
    for name in names:
        assert not await projects.create("p", name, "eve")
        assert await projects.list(name) == ([Project("p", owner)] if name == owner else [])
        assert await lines(audit, name) == ([("ada", "create project", "p", {})] if name == owner else [])
    assert await projects.find("p") == Project("p", owner)
    assert await dump_keys(redis, prefix) == before


async def test_projects_are_listed_by_id_with_the_default_one(projects: ProjectStore) -> None:
    assert not await projects.create("default", "acme", "eve")
    assert await projects.find("default") == await projects.get("default") == Project("default", "default")
    for project_id, organization in (("z", "acme"), ("b", "acme"), ("x", "other"), ("y", "default")):
        assert await projects.create(project_id, organization, "op")
    assert [project.id for project in await projects.list("acme")] == ["b", "z"]
    assert [project.id for project in await projects.list("default")] == ["default", "y"]


CHANGES: dict[str, Any] = {
    "weight": 2.5,
    "statuses": "basic",
    "max_active": 3,
    "limit_day": 0,
    "limit_week": 2000,
    "limit_month": 30_000,
}


async def test_changes_are_stored_and_logged(projects: ProjectStore, audit: AuditLog) -> None:
    await projects.create("p", "acme", "op")
    await projects.change(Project("p", "acme"), CHANGES, "ada")
    assert await projects.find("p") == Project("p", "acme", **CHANGES)
    await projects.change(Project("p", "acme"), {"limit_day": None, "weight": None}, "eve")
    assert await projects.find("p") == Project("p", "acme", **(CHANGES | {"limit_day": None, "weight": 1.0}))
    await projects.change(Project("p", "acme"), dict.fromkeys(CHANGES), "op")
    assert await projects.find("p") == Project("p", "acme")
    assert (await lines(audit, "acme"))[1:3] == [
        ("ada", "change project", "p", {name: str(value) for name, value in CHANGES.items()}),
        ("eve", "change project", "p", {"limit_day": "", "weight": ""}),
    ]


async def test_change_holds_at_once_and_elsewhere_after_the_cache(
    projects: ProjectStore, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    elsewhere = ProjectStore(redis, prefix)
    for store in (projects, elsewhere):
        assert (await store.get("default")).weight == 1.0
    await projects.change(Project("default"), {"weight": 4.0}, "op")
    assert (await projects.get("default")).weight == 4.0
    assert (await elsewhere.get("default")).weight == 1.0
    now += 10.0
    assert (await elsewhere.get("default")).weight == 4.0
