"""Requests of administrators with an invalid field are refused and change nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from support.http_client import Client, problems
from support.http_service import Service

PROJECT = "/v1/admin/projects/{project}"
TASKS = "/v1/admin/tasks"
KEYS = "/v1/admin/keys"
ORGANIZATIONS = "/v1/admin/organizations"
MEMBER = "/v1/admin/members/ann"
GRANTS = "/v1/admin/credits/grants"
USAGE = "/v1/usage"
REPORTS = "/v1/admin/licences/usage"

INVALID: list[tuple[str, str, dict[str, Any], str]] = [
    ("PATCH", PROJECT, {"weight": 0}, "weight"),
    ("PATCH", PROJECT, {"weight": 0.0099}, "weight"),
    ("PATCH", PROJECT, {"weight": 100.1}, "weight"),
    ("PATCH", PROJECT, {"weight": 2, "statuses": "some"}, "statuses"),
    ("PATCH", PROJECT, {"max_active": 0}, "max_active"),
    ("PATCH", PROJECT, {"max_active": 1_000_001}, "max_active"),
    ("PATCH", PROJECT, {"limit_day": -1}, "limit_day"),
    ("PATCH", PROJECT, {"limit_week": 1e13}, "limit_week"),
    ("PATCH", PROJECT, {"limit_month": "none"}, "limit_month"),
    ("PATCH", PROJECT, {"organization": "default"}, "organization"),
    ("GET", TASKS, {}, "project"),
    ("GET", TASKS, {"project": "x", "limit": 0}, "limit"),
    ("GET", TASKS, {"project": "default", "cursor": "x"}, "cursor"),
    ("POST", KEYS, {"name": None}, "name"),
    ("POST", KEYS, {"name": ""}, "name"),
    ("POST", KEYS, {"name": "x" * 101}, "name"),
    ("POST", KEYS, {"name": "one", "role": "king"}, "role"),
    ("POST", KEYS, {"name": "one", "expires": "tomorrow"}, "expires"),
    ("POST", KEYS, {"name": "one", "expires": time.time()}, "expires"),
    ("POST", KEYS, {"name": "one", "project": "x" * 65}, "project"),
    ("POST", ORGANIZATIONS, {"id": "a b"}, "id"),
    ("POST", ORGANIZATIONS, {"id": "a", "name": "x" * 201}, "name"),
    ("PUT", MEMBER, {}, "role"),
    ("PUT", MEMBER, {"role": "operator"}, "role"),
    ("PUT", MEMBER, {"role": None}, "role"),
    ("POST", GRANTS, {"id": "", "credits": 1}, "id"),
    ("POST", GRANTS, {"id": "x" * 101, "credits": 1}, "id"),
    ("POST", GRANTS, {"id": "x"}, "credits"),
    ("POST", GRANTS, {"id": "x", "credits": 1e13}, "credits"),
    ("POST", GRANTS, {"id": "x", "credits": float("nan")}, "credits"),
    ("POST", GRANTS, {"id": "x", "credits": 1, "note": "x" * 501}, "note"),
    ("GET", USAGE, {"since": "2026-02-02", "until": "2026-02-01"}, "until"),
    ("GET", USAGE, {"since": "9999-12-31"}, "until"),
    ("GET", USAGE, {"since": "2025-01-01", "until": "2026-01-02"}, "since"),
    ("GET", USAGE, {"since": "2026-02-30"}, "since"),
    ("GET", USAGE, {"until": ""}, "until"),
    ("GET", USAGE, {"until": "1767225600"}, "until"),
    ("GET", USAGE, {"since": "2026-01-31T00:00:00Z"}, "since"),
    ("GET", USAGE, {"format": "xml"}, "format"),
    ("GET", USAGE, {"project": "x" * 65}, "project"),
    ("GET", REPORTS, {"since": "2026-03-02", "until": "2026-03-01"}, "until"),
    ("GET", REPORTS, {"since": "2025-01-01", "until": "2026-03-01"}, "since"),
    ("GET", REPORTS, {"since": "yesterday"}, "since"),
]
"""Method, path, body or for GET the query, and the field that the error names."""


@pytest.mark.parametrize(("method", "path", "fields", "field"), INVALID)
def test_invalid_field_is_refused(
    operator: Client, service: Service, method: str, path: str, fields: dict[str, Any], field: str
) -> None:
    path = path.format(project=operator.project)
    with service.assert_unchanged():
        if method == "GET":
            response = operator.get(path, params=fields)
        else:  # as text, because the client refuses to encode NaN
            headers = {"Content-Type": "application/json"}
            response = operator.request(method, path, content=json.dumps(fields), headers=headers)
    assert [loc for loc, _ in problems(response)] == [["query" if method == "GET" else "body", field]]
