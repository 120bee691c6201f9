from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_service import RunningService

from serve_app.client import Client


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[RunningService]:
    """One service for all tests that leave it whole."""
    service = RunningService(tmp_path_factory.mktemp("service"), repository, tasks={"lease_s": 3, "max_active": 200})
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with service.client() as client:
        yield client
