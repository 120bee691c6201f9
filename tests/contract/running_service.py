"""The service's HTTP interface on a real socket, and a stand-in for the dispatcher behind it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import httpx2
import uvicorn
from fastapi import FastAPI
from redis_writes import written
from serve_app.dispatch.jobs import job_of, result_of

from deployments.contract.job import Output
from deployments.contract.objects import ObjectStore
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Credits
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.roles import Role
from serve_app.config import catalog
from serve_app.config.settings import RedisSettings, Settings
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.http.ingress import create_app
from serve_app.media.url_guard import UrlGuard
from serve_app.redis_store import connection
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status
from serve_app.webhooks.sealing import new_key

T = TypeVar("T")

LANE = "flux3-klein"
ENDPOINT = "/v1/gen-3-image-klein"
PICTURE_HOST = "pictures.test"
"""Resolves to loopback and is on the allow-list; loopback itself is not."""
HOOK_HOST = "hooks.test"
"""Resolves to a public address, which nothing here ever connects to."""
HOOK = f"https://{HOOK_HOST}/done"

_NAMES = {PICTURE_HOST: ["127.0.0.1"], HOOK_HOST: ["93.184.215.14"]}


async def resolve(host: str, port: int) -> Sequence[str]:
    """A name service of its own, so that no test asks the network."""
    if host in _NAMES:
        return _NAMES[host]
    try:
        return [str(ip_address(host))]
    except ValueError:
        raise OSError(f"unknown host {host}") from None


class Worker:
    """Plays the dispatcher and its model: takes tasks, moves them on, stores results and publishes outcomes."""

    def __init__(self, settings: Settings) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._redis = connection.connect(settings.redis_url)
        prefix = settings.redis.prefix
        self.tasks = TaskStore(self._redis, prefix, settings.tasks.limits())
        self.keys = KeyStore(self._redis, prefix)
        self.projects = ProjectStore(self._redis, prefix)
        self.organizations = OrganizationStore(self._redis, prefix)
        self.credits = Credits(self._redis, prefix)
        self.objects = ObjectStore(settings.objects_url)
        self._held: dict[str, Lease] = {}

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(step)

    async def reservations(self) -> list[str]:
        """Ids of tasks whose record and objects will go."""
        found: list[Any] = await self._redis.zrange(f"{self.tasks.prefix}expiring", 0, -1)
        return found

    def close(self) -> None:
        self.run(self._redis.aclose())
        self._runner.close()

    def new_key(
        self,
        project: str,
        role: Role = Role.DEVELOPER,
        organization: str = DEFAULT_ORGANIZATION,
        expires: float | None = None,
    ) -> str:
        created = self.keys.create("contract", project, role=role, organization=organization, expires=expires)
        return self.run(created)[1]

    def new_organization(self, credits: float) -> str:
        organization = f"organization-{uuid.uuid4().hex}"
        assert self.run(self.organizations.create(organization, organization, "test"))
        self.run(self.credits.grant(organization, "start", round(credits * 1000), "test"))
        return organization

    def new_project(self, organization: str) -> str:
        project = f"project-{uuid.uuid4().hex}"
        assert self.run(self.projects.create(project, organization, "test"))
        return project

    def new_finetune(self, project: str) -> str:
        """A tuned model of the picture endpoint's, there without the seconds that a check takes."""
        registry = FinetuneRegistry(self._redis, self.tasks.prefix)

        async def register() -> str:
            begun = await registry.begin("ink", project, ENDPOINT.removeprefix("/v1/"), LANE)
            return (await registry.finish(begun, rank=4, layers=1, size=1)).id

        return self.run(register())

    def set_project(self, project_id: str, **changes: Any) -> None:
        self.run(self.projects.change(Project(project_id), changes, "test"))

    def take(self, task_id: str) -> Lease:
        """The lease of this very task; all that wait before it are leased, too."""
        if task_id not in self._held:
            for lease in self.run(self.tasks.lease(self._lane(task_id), "worker", 10_000, 100_000)):
                self._held[lease.id] = lease
        return self._held[task_id]

    def advance(self, task_id: str, status: Status, **fields: Any) -> None:
        attempt = self.take(task_id).attempt
        assert self.run(self.tasks.advance(self._lane(task_id), task_id, attempt, status, **fields))

    def end(self, task_id: str, status: Status, **outcome: Any) -> None:
        attempt = self.take(task_id).attempt
        assert self.run(self.tasks.complete(self._lane(task_id), task_id, attempt, status, **outcome))

    def show_preview(self, task_id: str, data: bytes, step: int, steps: int) -> None:
        key = f"previews/{task_id}/{step}.jpeg"
        self.run(self.objects.put(key, data, "image/jpeg"))
        preview = {"key": key, "step": step, "steps": steps}
        self.advance(task_id, Status.GENERATING, progress=step / steps, preview=preview)

    def deliver(self, task_id: str, data: bytes, extension: str = "jpeg") -> str:
        """Stores the picture and publishes it as the dispatcher does. Returns its key."""
        lease = self.take(task_id)
        job = json.loads(lease.job)
        key = f"results/{task_id}/{lease.attempt}/picture.{extension}"
        self.run(self.objects.put(key, data, f"image/{extension}"))
        result = {
            "key": key,
            "prompt": job["prompt"],
            "seed": job["seed"],
            "start_time": 1_700_000_000.5,
            "end_time": 1_700_000_002.0,
            "duration": 1.5,
        }
        self.end(task_id, Status.READY, result=result)
        return key

    def deliver_clip(self, task_id: str, data: bytes, latents: bytes | None = None) -> None:
        """Stores the video, and the latents of a draft, and publishes both as the dispatcher does."""
        lease = self.take(task_id)
        spec = json.loads(lease.job)
        job = job_of(spec, lease, spec["prompt"], "results/")
        key, draft = f"{job.output_prefix}/clip.mp4", f"{job.output_prefix}/draft.safetensors"
        self.run(self.objects.put(key, data, "video/mp4"))
        if latents is not None:
            self.run(self.objects.put(draft, latents, "application/octet-stream"))
        output = Output(key, "video/mp4", job.width, job.height, len(data), None if latents is None else draft)
        self.end(task_id, Status.READY, result=result_of(job, output, began=1_700_000_000.5))

    def job(self, task_id: str) -> dict[str, Any]:
        """What submission decided the task is."""
        task = self.run(self.tasks.get(task_id))
        assert task is not None
        return task.job

    def _lane(self, task_id: str) -> str:
        task = self.run(self.tasks.get(task_id))
        assert task is not None
        return task.lane


class _Server(uvicorn.Server):
    """Tells when it is up; its thread is not the main one, so it leaves signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.up.set()


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
    def client(
        self,
        project: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        role: Role = Role.DEVELOPER,
        organization: str | None = None,
    ) -> Iterator[Client]:
        """A client with a key of `project`, or of a project of its own, in `organization`, which must be there."""
        if project is None:
            project = self.worker.new_project(organization) if organization else f"project-{uuid.uuid4().hex}"
        organization = organization or DEFAULT_ORGANIZATION
        secret = self.worker.new_key(project, role, organization)
        with Client(self.base_url, project, secret, headers, organization) as client:
            yield client

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Checks that what happens inside leaves nothing behind, neither in Redis nor in the object store."""
        before = self._kept()
        with written(self.settings.redis_url, self.settings.redis.prefix) as keys:
            yield
        # When a key was last used changes whatever comes of the request; others are forgotten by themselves. Where
        # inputs were stored before the refusal, their reservation came and went.
        passing = ("keys:used", "rate:", "report:", "expiring")
        changed = {key for key in keys if not key.startswith(passing)}
        assert not changed, f"written in Redis: {sorted(changed)}"
        kept = self._kept()
        assert kept == before, f"kept: {sorted(kept ^ before)}"

    def _kept(self) -> set[str]:
        """All objects, and reservations of those that are to come."""
        return set(self.worker.run(self.worker.objects.keys(""))) | set(self.worker.run(self.worker.reservations()))


class Client(httpx2.Client):
    """An HTTP client of the service that holds a key."""

    def __init__(
        self,
        base_url: str,
        project: str,
        secret: str,
        headers: Mapping[str, str] | None = None,
        organization: str = DEFAULT_ORGANIZATION,
    ) -> None:
        super().__init__(base_url=base_url, headers={"x-key": secret, **(headers or {})}, timeout=60, trust_env=False)
        self.project = project
        self.organization = organization
        self.secret = secret

    def submit(self, **body: Any) -> httpx2.Response:
        """Submits a picture; the prompt has a default."""
        return self.post(ENDPOINT, json={"prompt": "a cat", **body})

    def accepted(self, **body: Any) -> str:
        """The id of a task that was accepted."""
        response = self.submit(**body)
        assert response.status_code == 200, response.text
        return response.json()["id"]

    def order(self, endpoint: str, **body: Any) -> httpx2.Response:
        """Submits to an endpoint by its name."""
        return self.post(f"/v1/{endpoint}", json=body)

    def ordered(self, endpoint: str, **body: Any) -> str:
        """The id of a task that an endpoint accepted."""
        response = self.order(endpoint, **body)
        assert response.status_code == 200, response.text
        return response.json()["id"]

    def poll(self, task_id: str, **query: Any) -> httpx2.Response:
        return self.get("/v1/get_result", params={"id": task_id, **query})


def refusal(response: httpx2.Response, status: int) -> str:
    """The detail of an error that is no 422, whose form is checked on the way."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"detail"}
    assert isinstance(response.json()["detail"], str)
    return response.json()["detail"]


def problems(response: httpx2.Response) -> list[tuple[list[str], str]]:
    """Location and type of every entry of a 422, whose form is checked on the way."""
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/json"
    entries = response.json()["detail"]
    assert entries
    for entry in entries:
        assert {"type", "loc", "msg"} <= set(entry) <= {"type", "loc", "msg", "ctx"}
        assert all(isinstance(part, str) for part in entry["loc"])
    return [(entry["loc"], entry["type"]) for entry in entries]


StartService: TypeAlias = Callable[..., Service]
"""Takes settings, and `redis_url`."""


@contextmanager
def running(folder: Path, redis_url: str, repository: Path, **changes: Any) -> Iterator[Service]:
    """The service with the shipped catalog; `changes` are settings."""
    settings = Settings(
        data_dir=folder,
        catalog=changes.pop("catalog", repository / "configs/catalog.yaml"),
        redis=RedisSettings(url=redis_url, prefix=f"contract-{uuid.uuid4().hex}:"),
        **changes,
    ).with_webhook_key(new_key())
    app = create_app(settings, catalog.load(settings))
    # Forwarding headers are the app's own business.
    server = _Server(uvicorn.Config(app, log_config=None, proxy_headers=False, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        server.up.wait()
        try:
            assert server.started, "the service did not start"
            guard = UrlGuard([*settings.network.allow, PICTURE_HOST], resolve)
            app.state.services = dataclasses.replace(app.state.services, guard=guard)
            worker = Worker(settings)
            try:
                yield Service(f"http://127.0.0.1:{listener.getsockname()[1]}", settings, app, worker)
            finally:
                worker.close()
        finally:
            server.should_exit = True
            thread.join()
