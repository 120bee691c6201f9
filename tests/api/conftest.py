"""Fixtures: one running service for the session, and clients with projects of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import gen_serve_client
import pytest
from support import finetune_checks, python_clients
from support.faulty_transport import FaultyTransport
from support.http_client import Client
from support.http_service import Service, StartService, running
from support.python_clients import Connect
from support.website import PUBLIC_HOST, Website, serving
from support.worker import Worker

from serve_app.accounts.roles import Role
from serve_app.config.model_settings import ModelSettings
from serve_app.config.settings import TaskSettings
from serve_app.launcher.embedded_redis import EmbeddedRedis

MANY = 1_000_000


@pytest.fixture(autouse=True)
def _check_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    finetune_checks.check_in_process(monkeypatch)


@pytest.fixture(scope="session")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # No dispatcher runs to requeue tasks of expired leases.
    tasks = TaskSettings(max_queued=MANY, lease_s=3600, requests_per_s=MANY, burst=MANY)
    # Uploaded adapters are checked against their base; only bundled checkpoints are on this machine.
    models = {"flux3-klein": ModelSettings(checkpoint="bundled/flux3")}
    with running(tmp_path_factory.mktemp("service"), redis_url, repository, tasks=tasks, models=models) as service:
        yield service


@pytest.fixture
def start_service(redis_url: str, repository: Path, tmp_path: Path) -> Iterator[StartService]:
    """Starts further services, which end with the test."""
    with ExitStack() as stack:

        def start(**changes: Any) -> Service:
            url = changes.pop("redis_url", redis_url)
            return stack.enter_context(running(tmp_path / "data", url, repository, **changes))

        yield start


@pytest.fixture
def doomed_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis server that a test may break."""
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def worker(service: Service) -> Worker:
    return service.worker


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client with a key of a new project."""
    with service.client() as client:
        yield client


@pytest.fixture
def other_client(service: Service) -> Iterator[Client]:
    """A client of another project."""
    with service.client() as client:
        yield client


@pytest.fixture
def organization(service: Service) -> str:
    """A new organization with 100 credits."""
    return service.worker.new_organization(credits=100)


@pytest.fixture
def administrator(service: Service, organization: str) -> Iterator[Client]:
    """An administrator of `organization`."""
    with service.client(role=Role.ADMINISTRATOR, organization=organization) as client:
        yield client


@pytest.fixture
def operator(service: Service) -> Iterator[Client]:
    """An operator; its organization is the default one."""
    with service.client(role=Role.OPERATOR) as client:
        yield client


@pytest.fixture(scope="session")
def web() -> Iterator[Website]:
    with serving(PUBLIC_HOST) as web:
        yield web


@pytest.fixture
def network() -> FaultyTransport:
    return FaultyTransport()


@pytest.fixture(params=["plain", "asyncio"])
def connect_to(request: pytest.FixtureRequest, network: FaultyTransport) -> Iterator[Connect]:
    """Connects the published Python clients, which are closed with the test."""
    with asyncio.Runner() as runner:
        yield partial(
            python_clients.plain if request.param == "plain" else partial(python_clients.asynchronous, runner), network
        )
        network.close()
        runner.run(network.aclose())


@pytest.fixture
def gen(connect_to: Connect, service: Service, client: Client) -> gen_serve_client.Client:
    """A published client with the key of `client`."""
    return connect_to(service.base_url, client.secret)
