"""Commands that call a running service over HTTP, and commands that need only its Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gen_serve_client import Result
from support.cli_runner import GenServe, write_config
from support.http_service import Service, running
from support.images import image_file

from serve_app.accounts.roles import Role
from serve_app.cli.service import Client
from serve_app.config.settings import TaskSettings


@pytest.fixture(autouse=True)
def _isolate_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the services and the environment of this user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("GEN_CONFIG", "GEN_BASE_URL", "GEN_KEY", "GEN_API_KEY", "GEN_DATA_DIR", "GEN_METRICS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("serve_app.cli.service.DEFAULT_BASE_URL", "http://127.0.0.1:1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the working folder, which is empty."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # No dispatcher runs, so a lease that ran out would not come back: let none run out.
    tasks = TaskSettings(lease_s=3600)
    with running(tmp_path_factory.mktemp("service"), redis_url, repository, tasks=tasks) as service:
        yield service


@pytest.fixture
def key(service: Service) -> str:
    """Returns a key of a new project, in a new organization with 100 credits."""
    worker = service.worker
    organization = worker.new_organization(credits=100)
    return worker.new_key(worker.new_project(organization), organization=organization)


@pytest.fixture
def client_cli(
    service: Service, key: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> GenServe:
    """Runs commands in an empty folder with nothing but an address and a key."""
    monkeypatch.setenv("GEN_BASE_URL", service.base_url)
    monkeypatch.setenv("GEN_KEY", key)
    return GenServe(None, monkeypatch, capsys)


@pytest.fixture
def model(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivers an image for every task when a client first waits for it."""
    wait, delivered_ids = Client.wait, set[str]()

    def deliver_and_wait(client: Client, task_id: str, **options: Any) -> Result:
        if task_id not in delivered_ids:
            delivered_ids.add(task_id)
            form = service.worker.job(task_id)["output_format"]
            service.worker.deliver(task_id, image_file(form=form.upper()), form)
        return wait(client, task_id, **options)

    monkeypatch.setattr(Client, "wait", deliver_and_wait)


@pytest.fixture
def gen_serve(
    redis_url: str,
    prefix: str,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> GenServe:
    return GenServe(write_config(tmp_path, repository, redis_url, prefix), monkeypatch, capsys)


@pytest.fixture
def acme(service: Service) -> str:
    """Returns a new organization with 100 credits."""
    return service.worker.new_organization(credits=100)


@pytest.fixture
def shop(service: Service, acme: str) -> str:
    """Returns a new project of `acme`."""
    return service.worker.new_project(acme)


@pytest.fixture
def operator(client_cli: GenServe, service: Service, shop: str, acme: str, monkeypatch: pytest.MonkeyPatch) -> GenServe:
    """Runs commands with an operator's key of `acme`."""
    monkeypatch.setenv("GEN_KEY", service.worker.new_key(shop, Role.OPERATOR, acme))
    return client_cli
