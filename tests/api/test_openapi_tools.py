"""Published tools on the OpenAPI documents: linters, generators, and Schemathesis with made-up requests."""

from __future__ import annotations

import json
import subprocess
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
from support import published_clients
from support.http_client import Client
from support.http_service import Service, running
from support.openai_client import EDITS, GENERATIONS
from support.state_machines import HEALTH_CHECKS

from serve_app.config.settings import OpenAISettings, TaskSettings

pytestmark = pytest.mark.slow
DOCUMENTS = ["openapi.json", "openapi-admin.json"]


@pytest.fixture(scope="module")
def python(repository: Path) -> Path:
    return published_clients.python_environment(repository, "openapi")


@pytest.fixture(scope="module")
def packages(repository: Path) -> Path:
    return published_clients.node_package(repository, "openapi")


def run(*command: object) -> str:
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result.stdout


def node(packages: Path, script: str, *arguments: object) -> str:
    return run(published_clients.node(), packages / "node_modules" / script, *arguments)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_redocly_finds_no_error(repository: Path, packages: Path, document: str) -> None:
    node(packages, "@redocly/cli/bin/cli.js", "lint", repository / document)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_generated_typescript_compiles(repository: Path, packages: Path, tmp_path: Path, document: str) -> None:
    types = tmp_path / "types.ts"
    node(packages, "openapi-typescript/bin/cli.js", repository / document, "-o", types)
    node(packages, "typescript/bin/tsc", "--noEmit", "--strict", types)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_generated_models_can_be_imported(repository: Path, python: Path, tmp_path: Path, document: str) -> None:
    models = tmp_path / "models.py"
    kind = ["--input-file-type", "openapi", "--output-model-type", "pydantic_v2.BaseModel"]
    run(python, "-m", "datamodel_code_generator", "--input", repository / document, *kind, "--output", models)
    run(python, models)


def test_generated_client_submits_and_polls(
    repository: Path, python: Path, tmp_path: Path, service: Service, client: Client
) -> None:
    generator = ["generate", "-g", "python", "-i", repository / "openapi.json", "-o", tmp_path]
    run(python.parent / "openapi-generator-cli", *generator)
    script = repository / "tests/clients/openapi/generated.py"
    arguments = {"host": service.base_url, "key": client.secret}
    answer = published_clients.run_python(python, script, arguments, PYTHONPATH=str(tmp_path))
    assert answer["status"] == "Pending"
    assert answer["cost"] > 0
    assert answer["code"] == "invalid_key"


# Made-up requests, the same on every run


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


FRAMING = frozenset({"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"})
"""Headers that are left out: with made-up values the request would be no HTTP."""


def read(name: str) -> Any:
    description = json.loads((Path(__file__).parents[2] / name).read_text())
    return schemathesis.openapi.from_dict(description, config=SchemathesisConfig(seed=1))


schema, admin_schema = read("openapi.json"), read("openapi-admin.json")
few = settings(max_examples=5, derandomize=True, database=None, suppress_health_check=HEALTH_CHECKS)


@schema.parametrize()
@few
def test_answers_match_the_description(case: schemathesis.Case, api_service: Service, caller: Client) -> None:
    check(case, api_service, caller)


@admin_schema.parametrize()
@few
def test_answers_to_administrators_match_the_description(
    case: schemathesis.Case, api_service: Service, caller: Client
) -> None:
    check(case, api_service, caller)


def check(case: schemathesis.Case, service: Service, caller: Client) -> None:
    for name in [name for name in case.headers if name.lower() in FRAMING]:
        del case.headers[name]
    response = case.call(base_url=service.base_url, headers={"x-key": caller.secret})
    # Without models, requests that wait for a result get a 504.
    timed_out = case.path in (GENERATIONS, EDITS) and response.status_code == 504
    case.validate_response(response, checks=CHECKS[1:] if timed_out else CHECKS)
