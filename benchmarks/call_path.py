"""Call paths: the project's functions and files that handle a request until it is stored, and a task from its lease to
the replica's engine and to the model's first step.

Everything runs in this process over an embedded Redis: the ASGI app, a dispatcher's queue and a replica with a
simulated model. Each named function counts once; Lua scripts count as files.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, cast

import httpx2

from deployments.backends.simulated import SimulatedBackend
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelSpec
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.replica import MediaModel
from serve_app.api.app import create_app
from serve_app.api.services import Services, open_services
from serve_app.config import catalog
from serve_app.config.settings import RedisSettings, Settings
from serve_app.dispatcher.attempt import AttemptContext, Timeouts
from serve_app.dispatcher.clients import EventStream, ModelClient
from serve_app.dispatcher.concurrency import ConcurrencyLimiter
from serve_app.dispatcher.queue import QueueConsumer
from serve_app.encryption import new_key
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage.log_levels import LogLevels
from serve_app.storage.scripts import Scripts
from serve_app.tasks import scripts
from serve_app.tasks.store import TaskStore

_ROOT: Final = Path(__file__).parent.parent
_PACKAGES: Final = tuple(f"{_ROOT / name}/" for name in ("serve_app", "deployments"))
ENDPOINT: Final = "gen-3-image-klein"
BODY: Final = {"prompt": "a red star", "width": 64, "height": 64, "steps": 1}


@dataclass
class CallPath:
    """Records the project's functions while it is active, in every thread that starts after `listening`."""

    codes: dict[CodeType, None] = field(default_factory=dict)
    scripts: dict[str, int] = field(default_factory=dict)
    """Number of functions recorded before each Lua script, by the script's name."""
    active: bool = False
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def listening(self) -> Iterator[None]:
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self.active and event == "call" and code.co_filename.startswith(_PACKAGES) and code.co_name[0] != "<":
            self.codes.setdefault(code)
            if code is Scripts.run.__code__ or code is Scripts.run_replicated.__code__:
                self.scripts.setdefault(frame.f_locals["name"], len(self.codes))

    def until(self, function: Callable[..., object]) -> CallPath:
        """Returns the part of the path that ends with the call of `function`."""
        length = list(self.codes).index(function.__code__) + 1
        before = {name: position for name, position in self.scripts.items() if position < length}
        return CallPath(dict.fromkeys(list(self.codes)[:length]), before)

    @property
    def functions(self) -> list[str]:
        """Names of the functions in the order of their first calls."""
        return [f"{Path(code.co_filename).relative_to(_ROOT)}:{code.co_qualname}" for code in self.codes]

    @property
    def files(self) -> list[str]:
        lua = (f"serve_app/tasks/{part}.lua" for name in self.scripts for part in scripts.parts(name))
        return sorted({name.partition(":")[0] for name in self.functions} | set(lua))


@asynccontextmanager
async def _service() -> AsyncIterator[tuple[Services, httpx2.AsyncClient]]:
    """Opens the app's services over a new Redis, and a client of the app with a key and credits."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedRedis(Path(folder) / "redis")
        server.start()
        settings = Settings(
            data_dir=Path(folder), redis=RedisSettings(url=server.url), catalog=_ROOT / "configs/catalog.yaml"
        ).with_sealing_key(new_key())
        offered = catalog.load(settings)
        app = create_app(settings, offered)
        try:
            async with open_services(settings, offered) as services:
                app.state.services = services
                await services.accounts.credits.grant("default", "test", 10**9, by="benchmark")
                _, key = await services.accounts.keys.create("benchmark")
                transport = httpx2.ASGITransport(app=app)
                async with httpx2.AsyncClient(
                    transport=transport,
                    base_url="http://localhost",
                    headers={"x-key": key, "accept": "application/json"},
                ) as client:
                    yield services, client
        finally:
            server.stop()


async def trace_submission(services: Services, client: httpx2.AsyncClient) -> CallPath:
    """Traces a text-to-image POST until its task is stored. An untraced request before it fills the caches."""
    path, submit = CallPath(), TaskStore.submit

    async def submit_and_end(*args: Any) -> Any:
        accepted = await submit(*args)
        path.active = False
        return accepted

    TaskStore.submit = submit_and_end  # type: ignore[method-assign]
    try:
        (await client.post(f"/v1/{ENDPOINT}", json=BODY)).raise_for_status()
        with path.listening():
            path.active = True
            (await client.post(f"/v1/{ENDPOINT}", json=BODY)).raise_for_status()
    finally:
        TaskStore.submit = submit  # type: ignore[method-assign]
    return path


class _Handle:
    """Stands in for a Serve handle; its replica is in this process."""

    def __init__(self, replica: MediaModel) -> None:
        self._replica = replica

    @property
    def generate(self) -> _Handle:
        return self

    def options(self, **_: object) -> _Handle:
        return self

    def remote(self, job: GenerationJob) -> EventStream:
        return _Stream(self._replica, job)


@dataclass(frozen=True)
class _Stream:
    replica: MediaModel
    job: GenerationJob

    def __aiter__(self) -> Any:
        return self.replica.generate(self.job)

    def cancel(self) -> None: ...


async def trace_attempt(services: Services) -> CallPath:
    """Traces a task from its lease to the model's first step."""
    path, step, settings, store = CallPath(), SimulatedBackend.step, services.settings, services.tasks.store
    loop = asyncio.get_running_loop()

    def end_at_step(*args: Any) -> None:
        path.active = False
        loop.call_soon_threadsafe(path.finished.set)
        step(*args)

    name = services.catalog.served[ENDPOINT].model
    SimulatedBackend.step = end_at_step  # type: ignore[method-assign]
    try:
        with path.listening():
            replica = MediaModel.__new__(MediaModel)
            spec = ModelSpec(checkpoint="simulated/1ms", objects_url=settings.objects_url)
            await cast("Callable[[MediaModel, ModelSpec], Awaitable[None]]", MediaModel.__init__)(replica, spec)
            levels = LogLevels(services.redis, settings.redis.prefix, settings.logs.levels)
            context = AttemptContext(
                name,
                store,
                ObjectStore(settings.objects_url),
                ModelClient(cast("Any", _Handle(replica)), levels),
                ConcurrencyLimiter(8, 8),
                Timeouts(60, 60),
            )
            queue = QueueConsumer(context, max_leased=1)
            await store.lease(name, 0, 0)  # loads the script
            path.active = True
            leasing = asyncio.create_task(queue.lease())
            await path.finished.wait()
            leasing.cancel()
            await queue.drain(5)
    finally:
        SimulatedBackend.step = step  # type: ignore[method-assign]
    return path


async def _trace() -> tuple[CallPath, CallPath]:
    async with _service() as (services, client):
        return await trace_submission(services, client), await trace_attempt(services)


def show(*, names: bool) -> None:
    submission, attempt = asyncio.run(_trace())
    for title, path in (
        ("until stored", submission),
        ("from the lease to the replica's engine", attempt.until(Engine.submit)),
        ("from the lease to the first step", attempt),
    ):
        print(f"{title}: {len(path.functions)} functions in {len(path.files)} files")
        if names:
            print(*(f"  {name}" for name in path.functions), sep="\n")
            print(*(f"  {file}" for file in path.files if file.endswith(".lua")), sep="\n")
