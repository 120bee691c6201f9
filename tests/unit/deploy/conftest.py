"""The manifests as kustomize makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kustomize import Document, render

OVERLAYS = ("gpu", "cpu")


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def manifests(repository: Path, overlay: str) -> list[Document]:
    return render(repository / "deploy/kubernetes/overlays" / overlay)
