"""Entries that are in the object store are answered like those that are not, or it is said that they can't be."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from support.client import Client, refusal
from support.http_service import Service, StartService

from serve_app.accounts.archive import Archive
from serve_app.accounts.roles import Role
from serve_app.accounts.windows import day_number

LONG_AGO = datetime.now(UTC).date() - timedelta(days=200)


@pytest.fixture
def service(start_service: StartService) -> Service:
    return start_service()


@pytest.fixture
def operator(service: Service) -> Iterator[Client]:
    """Of an organization with 8 entries in its ledger and 10 in its audit log, and with usage of long ago."""
    worker = service.worker
    organization = worker.new_organization(credits=1)
    for n in range(7):
        worker.run(worker.credits.grant(organization, f"order-{n}", 1000, "test"))
        worker.run(worker.organizations.approve(organization, "gen-2-max", n, "test"))
    usage = f"{worker.tasks.prefix}usage:{organization}:{day_number(LONG_AGO)}"
    counts: Any = {"tasks|p|gen-2-max": "3", "cost|p|gen-2-max": "9000"}
    with Redis.from_url(service.settings.redis_url) as redis:
        redis.hset(usage, mapping=counts)
    with service.client(role=Role.OPERATOR, organization=organization) as client:
        yield client


def archive(service: Service) -> int:
    worker = service.worker
    archiver = Archive(worker.tasks.redis, worker.tasks.prefix, worker.objects, entries=2, usage_days=40)
    return worker.run(archiver.archive_due())


def answers(client: Client) -> list[dict[str, Any]]:
    """The ledger and the audit log page by page, and the usage of that day."""
    found: list[dict[str, Any]] = []
    for path in ("/v1/admin/ledger", "/v1/admin/audit"):
        query: dict[str, Any] = {"limit": 3}
        while True:
            page = client.get(path, params=query).json()
            found.append(page)
            if page["next"] is None:
                break
            query["before"] = page["next"]
    return [*found, usage(client).json()]


def usage(client: Client) -> Any:
    return client.get("/v1/usage", params={"since": str(LONG_AGO), "until": str(LONG_AGO)})


@pytest.mark.slow
def test_archived_entries_are_answered_as_before(service: Service, operator: Client) -> None:
    before = answers(operator)
    assert len(before) == 3 + 4 + 1
    assert before[-1]["usage"][0]["cost"] == 9
    assert archive(service) == 3 + 4 + 1
    assert answers(operator) == before


def test_an_archive_out_of_reach_is_a_503(service: Service, operator: Client) -> None:
    archive(service)
    service.worker.run(service.worker.objects.delete_prefix("archive"))
    refused = "Archived records are temporarily unavailable; try again shortly"
    for path in ("/v1/admin/ledger", "/v1/admin/audit"):
        assert refusal(operator.get(path), 503) == refused
        assert operator.get(path, params={"limit": 1}).status_code == 200
    answer = usage(operator)
    assert refusal(answer, 503) == refused
    assert answer.headers["retry-after"] == "2"
