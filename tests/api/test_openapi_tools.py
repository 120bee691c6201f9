"""Published linters and generators on the OpenAPI documents."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import published_clients
from support.http_client import Client
from support.http_service import Service

DOCUMENTS = ["openapi.json", "openapi-admin.json"]
pytestmark = pytest.mark.slow


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
def test_openapi_typescript_makes_types_that_compile(
    repository: Path, packages: Path, tmp_path: Path, document: str
) -> None:
    types = tmp_path / "types.ts"
    node(packages, "openapi-typescript/bin/cli.js", repository / document, "-o", types)
    node(packages, "typescript/bin/tsc", "--noEmit", "--strict", types)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_datamodel_codegen_makes_models(repository: Path, python: Path, tmp_path: Path, document: str) -> None:
    models = tmp_path / "models.py"
    kind = ["--input-file-type", "openapi", "--output-model-type", "pydantic_v2.BaseModel"]
    run(python, "-m", "datamodel_code_generator", "--input", repository / document, *kind, "--output", models)
    run(python, models)


def test_a_client_of_openapi_generator_submits_and_polls(
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
