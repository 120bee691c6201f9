"""What was used, by day, project and endpoint."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from support.client import Client, problems
from support.http_service import Service
from support.pictures import picture
from support.worker import Worker

from serve_app.accounts.roles import Role
from serve_app.tasks.task import Status

DAY = timedelta(days=1)
COLUMNS = ["day", "project", "endpoint", "tasks", "credits"]


def today() -> date:
    return datetime.now(UTC).date()


def around() -> dict[str, str]:
    """Days enough for a test that runs at midnight."""
    return {"since": str(today() - DAY), "until": str(today() + DAY)}


def usage(client: Client, **query: Any) -> list[dict[str, Any]]:
    response = client.get("/v1/usage", params=around() | query)
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"usage"}
    return response.json()["usage"]


def counted(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, float]]:
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for row in rows:
        assert set(row) == {"day", "project", "endpoint", "tasks", "cost"}
        tasks, cost = found.get((row["project"], row["endpoint"]), (0, 0.0))
        found[row["project"], row["endpoint"]] = (tasks + row["tasks"], cost + row["cost"])
    return found


@pytest.fixture
def viewer(service: Service, organization: str) -> Iterator[Client]:
    with service.client(role=Role.VIEWER, organization=organization) as client:
        yield client


@pytest.fixture
def projects(service: Service, worker: Worker, organization: str) -> list[str]:
    """Two: the first used two endpoints, the second one."""
    with service.client(organization=organization) as one, service.client(organization=organization) as two:
        for task_id in (
            one.accepted(),
            one.accepted(resolution="2k"),
            one.ordered("gen-2-max", prompt="a cat"),
            two.accepted(),
        ):
            worker.deliver(task_id, picture(form="JPEG"))
        for status in (Status.ERROR, Status.CONTENT_MODERATED):
            worker.end(one.accepted(), status)
        one.accepted()
        one.delete(f"/v1/tasks/{two.accepted()}")
        return [one.project, two.project]


def test_only_what_was_delivered_counts(viewer: Client, projects: list[str]) -> None:
    one, two = projects
    assert counted(usage(viewer)) == {
        (one, "gen-3-image-klein"): (2, pytest.approx(0.9 + 0.9 + 3 * 0.18)),
        (one, "gen-2-max"): (1, 7),
        (two, "gen-3-image-klein"): (1, 0.9),
    }


def test_json_and_csv_agree(viewer: Client, projects: list[str]) -> None:
    rows = usage(viewer)
    response = viewer.get("/v1/usage", params=around() | {"format": "csv"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/csv")
    disposition = response.headers["content-disposition"]
    assert disposition == 'attachment; filename="usage-{since}-{until}.csv"'.format(**around())
    table = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert len(table) == len(rows) >= 3
    for told, row in zip(table, rows, strict=True):
        assert list(told) == COLUMNS
        assert (told["day"], told["project"], told["endpoint"]) == (row["day"], row["project"], row["endpoint"])
        assert (int(told["tasks"]), float(told["credits"])) == (row["tasks"], row["cost"])


@pytest.mark.parametrize("form", ["json", "csv"])
def test_only_of_one_project(viewer: Client, projects: list[str], form: str) -> None:
    one, two = projects
    for project, other in ((one, two), (two, one)):
        text = viewer.get("/v1/usage", params=around() | {"project": project, "format": form}).text
        assert project in text
        assert other not in text
    assert usage(viewer, project="none") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "2026-02-02", "until": "2026-02-01"}, "until"),
        ({"since": "9999-12-31"}, "until"),
        ({"since": "2025-01-01", "until": "2026-01-02"}, "since"),
        ({"since": "0001-01-01", "until": "9999-12-31"}, "since"),
        ({"since": "2026-02-30"}, "since"),
        ({"since": "yesterday"}, "since"),
        ({"until": ""}, "until"),
        ({"until": "0"}, "until"),
        ({"until": "1767225600"}, "until"),
        ({"since": "2026-01-31T00:00:00Z"}, "since"),
        ({"since": "20260131"}, "since"),
        ({"format": "xml"}, "format"),
        ({"project": "x" * 65}, "project"),
        ({"organization": "x" * 65}, "organization"),
    ],
)
def test_queries_that_are_refused(viewer: Client, query: dict[str, str], field: str) -> None:
    assert [loc for loc, _ in problems(viewer.get("/v1/usage", params=query))] == [["query", field]]
