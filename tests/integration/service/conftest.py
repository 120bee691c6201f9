from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.local_service import LocalService

from serve_app.cli.client import Client


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalService]:
    """One service for all tests that leave it whole."""
    service = LocalService(tmp_path_factory.mktemp("service"), repository, tasks={"lease_s": 3, "max_active": 200})
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture
def client(service: LocalService) -> Iterator[Client]:
    with service.client() as client:
        yield client
