"""One running service for the session; tests are kept apart by projects of their own."""

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
    # No dispatcher runs, so a lease that ran out would not come back: let none run out.
    tasks = TaskSettings(max_queued=MANY, lease_s=3600, requests_per_s=MANY, burst=MANY)
    # Uploads of tuned models are checked against their base, and only the bundled ones are here.
    models = {"flux3-klein": ModelSettings(checkpoint="bundled/flux3")}
    with running(tmp_path_factory.mktemp("service"), redis_url, repository, tasks=tasks, models=models) as service:
        yield service


@pytest.fixture
def start_service(redis_url: str, repository: Path, tmp_path: Path) -> Iterator[StartService]:
    """Starts further services with settings of their own; they end with the test."""
    with ExitStack() as stack:

        def start(**changes: Any) -> Service:
            url = changes.pop("redis_url", redis_url)
            return stack.enter_context(running(tmp_path / "data", url, repository, **changes))

        yield start


@pytest.fixture
def doomed_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A server of its own, for tests that break it."""
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def worker(service: Service) -> Worker:
    return service.worker


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """Holds a key of a project that no other test uses."""
    with service.client() as client:
        yield client


@pytest.fixture
def other_client(service: Service) -> Iterator[Client]:
    """Someone else: another key of another project."""
    with service.client() as client:
        yield client


@pytest.fixture
def organization(service: Service) -> str:
    """One that no other test uses, with 100 credits."""
    return service.worker.new_organization(credits=100)


@pytest.fixture
def administrator(service: Service, organization: str) -> Iterator[Client]:
    """Of `organization`, with a project of its own."""
    with service.client(role=Role.ADMINISTRATOR, organization=organization) as client:
        yield client


@pytest.fixture
def operator(service: Service) -> Iterator[Client]:
    """Above all organizations; itself of the default one."""
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
    """Published Python clients, which are closed with the test."""
    with asyncio.Runner() as runner:
        yield partial(
            python_clients.plain if request.param == "plain" else partial(python_clients.asynchronous, runner), network
        )
        network.close()
        runner.run(network.aclose())


@pytest.fixture
def gen(connect_to: Connect, service: Service, client: Client) -> gen_serve_client.Client:
    """Holds the key of `client`."""
    return connect_to(service.base_url, client.secret)
