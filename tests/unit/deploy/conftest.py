"""The shipped files: manifests as kustomize renders them, the image, the compose file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.kustomize import Document, render


@pytest.fixture(scope="session", params=["gpu", "cpu"])
def overlay(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def manifests(repository: Path, overlay: str) -> list[Document]:
    return render(repository / "deploy/kubernetes/overlays" / overlay)


@pytest.fixture(scope="session")
def ray_service(manifests: list[Document]) -> Document:
    """Returns the spec of the only RayService."""
    (match,) = (each for each in manifests if each["kind"] == "RayService")
    return match["spec"]


@pytest.fixture(scope="session")
def config_maps(manifests: list[Document]) -> dict[str, dict[str, str]]:
    return {each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "ConfigMap"}


@pytest.fixture(scope="session")
def dockerfile(repository: Path) -> str:
    return (repository / "Dockerfile").read_text()


@pytest.fixture(scope="session")
def compose(repository: Path) -> Document:
    return yaml.safe_load((repository / "docker-compose.yaml").read_text())
