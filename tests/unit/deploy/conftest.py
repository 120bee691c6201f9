"""The manifests as kustomize makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kustomizations import Document, rendered

OVERLAYS = ("gpu", "cpu")


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def manifests(repository: Path, overlay: str) -> list[Document]:
    return rendered(repository / "deploy/kubernetes/overlays" / overlay)
