"""The service's HTTP interface on a real socket, with a `Worker` in place of dispatchers and models."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import uvicorn
from fastapi import FastAPI
from redis import Redis
from starlette.types import ASGIApp

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.roles import Role
from serve_app.api.app import create_app
from serve_app.api.metrics import create_metrics_app
from serve_app.api.model_status import CountReplicas, unknown_replicas
from serve_app.api.openapi import admin_document
from serve_app.api.services import Services
from serve_app.config import catalog
from serve_app.config.settings import RedisSettings, Settings
from serve_app.encryption import new_key
from serve_app.inputs.fetch import FetchLimiter
from serve_app.inputs.inputs import Inputs
from serve_app.inputs.ssrf import UrlGuard
from support.http_client import HOOK_HOST, Client
from support.website import PUBLIC_HOST
from support.worker import Worker

StartService: TypeAlias = Callable[..., "Service"]
"""Takes settings and `redis_url`."""
_NAMES = {PUBLIC_HOST: ["127.0.0.1"], HOOK_HOST: ["93.184.215.14"]}


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolves the tests' own names; no test asks the network."""
    if host in _NAMES:
        return _NAMES[host]
    try:
        return [str(ip_address(host))]
    except ValueError:
        raise OSError(f"unknown host {host}") from None


def described_paths(app: FastAPI) -> dict[str, dict[str, Any]]:
    """Returns the paths of both OpenAPI documents of an app."""
    return app.openapi()["paths"] | admin_document(app)["paths"]


class _Server(uvicorn.Server):
    """Sets `up` when it has started. It runs outside the main thread and leaves signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.up.set()


def replace_services(app: FastAPI, group: str = "", **changes: Any) -> Services:
    """Replaces services of the app, or of one group of them. Returns the services before."""
    services: Services = app.state.services
    if group:
        changes = {group: dataclasses.replace(getattr(services, group), **changes)}
    app.state.services = dataclasses.replace(services, **changes)
    return services


@dataclasses.dataclass(frozen=True)
class Service:
    base_url: str
    settings: Settings
    app: FastAPI
    worker: Worker

    @property
    def address(self) -> tuple[str, int]:
        url = httpx2.URL(self.base_url)
        assert url.port is not None
        return url.host, url.port

    @contextmanager
    def metrics(self, replicas: CountReplicas = unknown_replicas) -> Iterator[Client]:
        """Serves `/metrics` and yields a client of it without a key."""
        app = create_metrics_app(self.settings, catalog.load(self.settings), replicas)
        with serving(app) as base_url, Client(base_url, project="", secret="") as client:
            yield client

    @contextmanager
    def client(
        self,
        project: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        role: Role = Role.DEVELOPER,
        organization: str | None = None,
    ) -> Iterator[Client]:
        """Yields a client with a key of `project`, or of a new project, in `organization`, which must exist."""
        if project is None:
            project = self.worker.new_project(organization) if organization else f"project-{uuid.uuid4().hex}"
        organization = organization or DEFAULT_ORGANIZATION
        secret = self.worker.new_key(project, role, organization)
        with Client(self.base_url, project, secret, headers, organization) as client:
            yield client

    @contextmanager
    def assert_unchanged(self) -> Iterator[None]:
        """Checks that the calls inside leave nothing in Redis or the object store."""
        before = self._stored_keys()
        with _track_writes(self.settings.redis_url, self.settings.redis.prefix) as keys:
            yield
        # A key's last use is recorded even for rejected requests, a reservation is made and dropped for stored inputs,
        # and the other keys expire soon.
        passing = ("keys:used", "memory", "rate:", "report:", "retention", "reserved:", "storing:", "tally:", "upload")
        changed = {key for key in keys if not key.startswith(passing)}
        # An idempotency key is claimed while a request is checked, and released when it is rejected.
        changed -= {key for key in changed if key.startswith("idempotency:") and not self.worker.has(key)}
        assert not changed, f"written in Redis: {sorted(changed)}"
        after = self._stored_keys()
        assert after == before, f"kept: {sorted(after ^ before)}"

    def _stored_keys(self) -> set[str]:
        """Returns the keys of objects and the ids of reservations."""
        return set(self.worker.run(self.worker.objects.keys(""))) | set(self.worker.run(self.worker.reservations()))


@contextmanager
def _track_writes(url: str, prefix: str) -> Iterator[set[str]]:
    """Collects the names of keys below `prefix` that were written; expiry does not count.

    Redis reports them: comparing all keys before and after would take longer with every test of the session.
    """
    keys = set[str]()
    with Redis.from_url(url) as redis, redis.pubsub() as events:
        redis.config_set("notify-keyspace-events", "KA")
        events.psubscribe(f"__keyspace@*__:{prefix}*")
        next(message for message in events.listen() if message["type"] == "psubscribe")
        yield keys
        events.ping()  # its answer comes after all pending events
        for message in itertools.takewhile(lambda each: each["type"] != "pong", events.listen()):
            if message["data"] not in (b"end_overdue", b"expired"):
                keys.add(message["channel"].decode().partition(f"__:{prefix}")[2])


def make_settings(folder: Path, redis_url: str, prefix: str, repository: Path, **changes: Any) -> Settings:
    """Returns the settings of a service with the shipped catalog, with `changes`."""
    usual: dict[str, Any] = {"catalog": repository / "configs/catalog.yaml"}
    redis = RedisSettings(url=redis_url, prefix=prefix)
    return Settings(data_dir=folder, redis=redis, **usual | changes).with_sealing_key(new_key())


@contextmanager
def running(folder: Path, redis_url: str, repository: Path, **changes: Any) -> Iterator[Service]:
    """Runs the service with the shipped catalog; `changes` are settings."""
    settings = make_settings(folder, redis_url, f"contract-{uuid.uuid4().hex}:", repository, **changes)
    app = create_app(settings, catalog.load(settings))
    with serving(app) as base_url:
        guard = UrlGuard([*settings.network.allow, PUBLIC_HOST], resolve)
        services: Services = app.state.services
        inputs = Inputs(guard, decoders=2, limiter=FetchLimiter.from_settings(settings.network))
        submission = dataclasses.replace(services.inputs.submission, guard=guard, inputs=inputs)
        replace_services(app, "inputs", submission=submission)
        worker = Worker(settings)
        try:
            yield Service(base_url, settings, app, worker)
        finally:
            worker.close()
            inputs.close()


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serves the app and yields its base URL."""
    # The app evaluates forwarding headers itself.
    server = _Server(uvicorn.Config(app, log_config=None, proxy_headers=False, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        server.up.wait()
        try:
            assert server.started, "the service did not start"
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
