"""Requests made up from the description, valid and invalid ones: whatever is sent, the answer is one that is described.

The same requests on every run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.http_client import Client
from support.http_service import Service, running
from support.openai_client import EDITS, GENERATIONS
from support.state_machines import HEALTH_CHECKS

from serve_app.config.settings import OpenAISettings, TaskSettings

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


@pytest.fixture(scope="module")
def api_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    tasks = TaskSettings(max_active=8)  # so that 429 is among the answers
    openai = OpenAISettings(wait_s=0.05)
    folder = tmp_path_factory.mktemp("described")
    with running(folder, redis_url, repository, tasks=tasks, openai=openai) as service:
        yield service


@pytest.fixture(scope="module")
def caller(api_service: Service) -> Iterator[Client]:
    with api_service.client() as client:
        yield client


# Made-up headers may have these names, too; with made-up values the request is no HTTP and never reaches the service.
FRAMING = frozenset({"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"})


def read(name: str) -> Any:
    description = json.loads((Path(__file__).parents[2] / name).read_text())
    return schemathesis.openapi.from_dict(description, config=SchemathesisConfig(seed=1))


schema, admin_schema = read("openapi.json"), read("openapi-admin.json")
few = settings(max_examples=5, derandomize=True, database=None, suppress_health_check=HEALTH_CHECKS)


@pytest.mark.slow
@schema.parametrize()
@few
def test_answers_are_as_described(case: schemathesis.Case, api_service: Service, caller: Client) -> None:
    check(case, api_service, caller)


@pytest.mark.slow
@admin_schema.parametrize()
@few
def test_answers_to_administrators_are_as_described(
    case: schemathesis.Case, api_service: Service, caller: Client
) -> None:
    check(case, api_service, caller)


def check(case: schemathesis.Case, described: Service, caller: Client) -> None:
    for name in [name for name in case.headers if name.lower() in FRAMING]:
        del case.headers[name]
    response = case.call(base_url=described.base_url, headers={"x-key": caller.secret})
    # No model works here: requests that wait for one are answered as described, by 504.
    waited_in_vain = case.path in (GENERATIONS, EDITS) and response.status_code == 504
    case.validate_response(response, checks=CHECKS[1:] if waited_in_vain else CHECKS)
