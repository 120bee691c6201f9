"""The app's services: one of each, opened and closed with it; and readiness."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from fastapi import Depends, Request
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError, RedisError

from deployments.contract.counts import ReplicaCounts
from deployments.contract.objects import UNREACHABLE, ObjectStore
from deployments.telemetry.tracing import create_tracer
from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Credits
from serve_app.accounts.jwt_auth import BearerTokens, fetch_keys
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.licences import LicenceStore
from serve_app.accounts.members import InvitationStore, MembershipRevocation, People
from serve_app.accounts.names import fold_stored_names
from serve_app.accounts.oauth import Authorizations, OAuthClients, TokenAuthentication
from serve_app.accounts.openid import OpenId
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.sessions import SessionResolver, SessionStore
from serve_app.background import Loops
from serve_app.config.catalog import Catalog
from serve_app.config.replicas import rewriter_tasks
from serve_app.config.settings import Settings
from serve_app.deletion import Eraser
from serve_app.encryption import Sealer
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.finetunes.upload import Uploads
from serve_app.inputs.fetch import FetchTurns
from serve_app.inputs.inputs import Inputs
from serve_app.inputs.links import LinkSigner, get_link_secret
from serve_app.inputs.url_guard import UrlGuard
from serve_app.storage import connection, snapshot
from serve_app.storage.pages import LogLevels
from serve_app.storage.refusals import NO_PERMISSION, StoreRefused, describe_store_problem, probe
from serve_app.storage.tally import CounterBuffer
from serve_app.submission.prepare import Dependencies
from serve_app.tasks.estimates import Outlook, estimate, find_place, read_outlook
from serve_app.tasks.notifications import Completions
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task
from serve_app.tasks.views import Presenter, get_queue_load
from serve_app.tasks.windows import WindowReader
from serve_app.webhooks.outbox import Outbox

logger = logging.getLogger(__name__)

_MAX_PER_TASK: Final = 32
"""Who follow one task in this process."""


class Watchers:
    """Waiting polls and streams of events, some 90 KiB each. They leave a quarter of a replica's requests to others."""

    def __init__(self, max_ongoing_requests: int) -> None:
        self._most = max(1, max_ongoing_requests * 3 // 4)
        self._all = 0
        self._by_task: Counter[str] = Counter()

    @contextlib.contextmanager
    def one_more(self, task_id: str) -> Iterator[bool]:
        """Whether there is room to wait; without, the task is to be told as it is now, and asked for again."""
        if self._by_task[task_id] >= _MAX_PER_TASK or self._all >= self._most:
            yield False
            return
        self._all += 1
        self._by_task[task_id] += 1
        try:
            yield True
        finally:
            self._all -= 1
            self._by_task[task_id] -= 1
            if not self._by_task[task_id]:
                del self._by_task[task_id]


T = TypeVar("T")


class SingleFlightCache(Generic[T]):
    """Asks once for all who come together, and again only when the answer is `for_s` seconds old. An error is kept for
    nobody."""

    def __init__(
        self, ask: Callable[[], Awaitable[T]], for_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._for_s = for_s
        self._clock = clock
        self._asking = asyncio.Lock()
        self._answer: tuple[float, T] | None = None

    async def get(self) -> T:
        async with self._asking:
            if self._answer is None or self._clock() - self._answer[0] >= self._for_s:
                self._answer = (self._clock(), await self._ask())
            return self._answer[1]


NO_STORE: Final = "the task store is out of reach"
STORE_REFUSES: Final = "the task store refuses requests"
STORE_FULL: Final = "the task store is full"
NO_OBJECTS: Final = "the object store takes no objects"
NO_DISPATCHER: Final = "no dispatcher is running"

_LIMIT_S: Final = 2.0
"""For each of what is asked."""
_FRESH_S: Final = 1.0
_OBJECTS_FRESH_S: Final = 10.0
"""Asking costs a write."""
_PROBE: Final = "health"


class Readiness:
    """Costs nothing unless asked, and then no more than a look a second, however many ask."""

    def __init__(self, tasks: TaskStore, objects: ObjectStore, prober: Redis) -> None:
        """`prober` is a client that gives up soon: one that insists would hide why the store refuses."""
        self._tasks = tasks
        self._prober = prober
        self._objects = objects
        self._writable = SingleFlightCache(self._takes_objects, _OBJECTS_FRESH_S)
        self._missing = SingleFlightCache(self._look, _FRESH_S)

    async def missing(self) -> list[str]:
        """Empty where nothing is."""
        return await self._missing.get()

    async def _look(self) -> list[str]:
        store_problems, writable = await asyncio.gather(self._check_store(), self._writable.get())
        return [*store_problems, *(() if writable else (NO_OBJECTS,))]

    async def _check_store(self) -> list[str]:
        tasks = self._tasks
        try:
            async with asyncio.timeout(_LIMIT_S):
                if missing := await probe(self._prober, tasks.prefix):
                    raise StoreRefused(NO_PERMISSION, missing[0])
                used_bytes, most = await tasks.memory()
                has_dispatcher = await tasks.has_dispatcher()
        except OutOfMemoryError:
            return [STORE_FULL]
        except (RedisError, TimeoutError) as problem:
            reason = describe_store_problem(problem)
            logger.warning(
                "not ready, as the task store does not work: %s", problem if reason else type(problem).__name__
            )
            return [f"{STORE_REFUSES}: {reason}" if reason else NO_STORE]
        full = most > 0 and used_bytes > tasks.limits.max_memory * most
        return [*((STORE_FULL,) if full else ()), *(() if has_dispatcher else (NO_DISPATCHER,))]

    async def _takes_objects(self) -> bool:
        key = f"{_PROBE}/{uuid.uuid4().hex}"
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._objects.put(key, b"", "application/octet-stream")
                await self._objects.delete([key])
        except UNREACHABLE as problem:
            logger.warning("not ready, as the object store takes no objects: %s", type(problem).__name__)
            return False
        return True


State: TypeAlias = Literal["ready", "starting", "scaled to zero", "no replica"]

_ORDER: Final[tuple[State, ...]] = ("ready", "starting", "scaled to zero", "no replica")
"""The further on, the longer it takes until something is made."""

_MODEL_STATES_FRESH_S: Final = 1.0
_MODEL_STATES_LIMIT_S: Final = 2.0
_RUNNING: Final = "RUNNING"
_COMING: Final = ("STARTING", "UPDATING", "RECOVERING")


@dataclass(frozen=True, slots=True)
class ModelState:
    """`state` is None where nobody knows about replicas, `predicted_wait_s` where no task was ever done."""

    state: State | None
    predicted_wait_s: float | None


class ModelStates:
    """A look a second at most, however many ask."""

    def __init__(
        self,
        tasks: TaskStore,
        windows: WindowReader,
        queues: Iterable[str],
        replicas: AskReplicas,
    ) -> None:
        self._tasks = tasks
        self._windows = windows
        self._queues = tuple(queues)
        self._replicas = replicas
        self._counts = SingleFlightCache(self._count_replicas, _MODEL_STATES_FRESH_S)
        self._states = SingleFlightCache(self._look, _MODEL_STATES_FRESH_S)

    async def find_worst(self, queues: Iterable[str]) -> ModelState:
        """Of what is made by any of these queues: the worst."""
        states_by_queue = await self._states.get()
        model_states = [states_by_queue[queue] for queue in queues]
        states: list[State] = [one.state for one in model_states if one.state is not None]
        waits = [one.predicted_wait_s for one in model_states if one.predicted_wait_s is not None]
        worst: State | None = max(states, key=_ORDER.index, default=None)
        return ModelState(worst, max(waits, default=None))

    async def state(self, queue: str) -> tuple[State | None, str | None]:
        """Returns the state as in ModelState, and what clients may know of the fault that keeps it from starting."""
        counts = (await self._counts.get()).get(queue)
        return _state(counts), counts.fault.for_clients if counts and counts.fault else None

    async def _look(self) -> Mapping[str, ModelState]:
        replicas = await self._counts.get()
        loads = await asyncio.gather(*(get_queue_load(self._tasks, self._windows, queue) for queue in self._queues))
        return {
            queue: ModelState(_state(replicas.get(queue)), load.wait_s)
            for queue, load in zip(self._queues, loads, strict=True)
        }

    async def _count_replicas(self) -> Replicas:
        try:
            async with asyncio.timeout(_MODEL_STATES_LIMIT_S):
                return await self._replicas()
        except Exception as problem:
            # Whoever counts them may be away, while tasks are taken and made.
            logger.warning("it is not known what replicas there are: %s", type(problem).__name__)
            return {}


def _state(replicas: ReplicaCounts | None) -> State | None:
    if replicas is None:
        return None
    if replicas.states.get(_RUNNING):
        return "ready"
    if any(replicas.states.get(state) for state in _COMING):
        return "starting"
    return "no replica" if replicas.target else "scaled to zero"


Replicas: TypeAlias = Mapping[str, ReplicaCounts]
"""By deployment."""
AskReplicas: TypeAlias = Callable[[], Awaitable[Replicas]]


async def unknown_replicas() -> Replicas:
    return {}


class Estimates:
    """A look a second at each queue at most, however many ask."""

    def __init__(self, tasks: TaskStore, windows: WindowReader, models: ModelStates) -> None:
        self._tasks = tasks
        self._models = models
        self._windows = windows
        self._outlooks: dict[str, SingleFlightCache[Outlook]] = {}

    async def details(self, task: Task) -> dict[str, Any] | None:
        """What `estimate` tells of a task that has not ended. Raises RedisError."""
        queue = task.queue
        if queue not in self._outlooks:
            look = partial(read_outlook, self._tasks, self._windows, queue)
            self._outlooks[queue] = SingleFlightCache(look, _FRESH_S)
        outlook, place = await asyncio.gather(self._outlooks[queue].get(), find_place(self._tasks, task))
        # Replicas are asked for where none told of itself: that is a call of Serve's controller.
        state, fault = None, None
        if task.status is Status.PENDING and outlook.step_s is None:
            state, fault = await self._models.state(queue)
        starting = state not in (None, "ready")
        return estimate(task, place, outlook, await self._tasks.now(), starting=starting, fault=fault)


ANSWER_S: Final = 4.5
"""How long a request waits for one answer of the task store; more than a submission stays valid (`SUBMIT_S`)."""


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    catalog: Catalog
    redis: Redis
    tasks: TaskStore
    windows: WindowReader
    completions: Completions
    watchers: Watchers
    callers: Callers
    tokens: BearerTokens
    people: People
    sessions: SessionStore
    session_resolver: SessionResolver
    openid: OpenId | None
    invitations: InvitationStore
    oauth_clients: OAuthClients
    authorizations: Authorizations
    token_authentication: TokenAuthentication
    membership_revocation: MembershipRevocation
    keys: KeyStore
    projects: ProjectStore
    organizations: OrganizationStore
    credits: Credits
    licences: LicenceStore
    audit: AuditLog
    objects: ObjectStore
    sealer: Sealer
    links: LinkSigner
    presenter: Presenter
    outbox: Outbox
    submission: Dependencies
    finetunes: FinetuneRegistry
    uploads: Uploads
    eraser: Eraser
    replicas: AskReplicas
    tally: CounterBuffer
    models: ModelStates
    estimates: Estimates
    readiness: Readiness


@asynccontextmanager
async def open_services(
    settings: Settings, catalog: Catalog, replicas: AskReplicas = unknown_replicas, tally: CounterBuffer | None = None
) -> AsyncIterator[Services]:
    sealer, at_rest = Sealer(settings.sealing_keys), settings.at_rest()
    redis, prefix = connection.connect(settings.redis_url, answer_s=ANSWER_S), settings.redis.prefix
    prober = connection.connect(settings.redis_url, max_connections=2, retries=1, answer_s=_LIMIT_S)
    tasks = TaskStore(redis, prefix, settings.tasks.limits(), settings.redis.replication(), at_rest)
    windows, completions = WindowReader(tasks), Completions(redis, prefix)
    objects = ObjectStore(settings.objects_url, settings.objects.options)
    links = LinkSigner(await get_link_secret(redis, prefix))
    finetunes = FinetuneRegistry(redis, prefix, at_rest)
    guard = UrlGuard(settings.network.allow)
    tracer = create_tracer(settings.tracing.spec(), "ingress")
    service = settings.service
    inputs = Inputs(guard, service.decoders, FetchTurns.from_settings(settings.network), service.public_url)
    projects, organizations = ProjectStore(redis, prefix), OrganizationStore(redis, prefix)
    callers, sessions = Callers(redis, prefix), SessionStore(redis, prefix)
    session_resolver = SessionResolver(sessions, callers, organizations, projects, settings.accounts.local_role)
    authorizations, invitations = Authorizations(redis, prefix), InvitationStore(redis, prefix)
    models = ModelStates(tasks, windows, catalog.models, replicas)
    services = Services(
        settings=settings,
        catalog=catalog,
        redis=redis,
        tasks=tasks,
        windows=windows,
        completions=completions,
        watchers=Watchers(settings.service.max_ongoing_requests),
        callers=callers,
        tokens=BearerTokens(settings.accounts.trusted_issuers(), fetch_keys, projects, organizations),
        people=People(redis, prefix),
        sessions=sessions,
        session_resolver=session_resolver,
        openid=_openid(settings, redis),
        invitations=invitations,
        oauth_clients=OAuthClients(redis, prefix, sealer.seal, sealer.open_or_none),
        authorizations=authorizations,
        token_authentication=TokenAuthentication(authorizations, session_resolver),
        membership_revocation=MembershipRevocation(sessions, authorizations, invitations),
        keys=KeyStore(redis, prefix),
        projects=projects,
        organizations=organizations,
        credits=Credits(redis, prefix),
        licences=LicenceStore(redis, prefix),
        audit=AuditLog(redis, prefix),
        objects=objects,
        sealer=sealer,
        links=links,
        presenter=Presenter(objects, links, settings.links.image_life_s, settings.links.video_life_s),
        outbox=Outbox(redis, prefix, settings.webhooks, at_rest),
        submission=Dependencies(
            tasks,
            objects,
            guard,
            inputs,
            finetunes.weights,
            sealer.seal,
            tracer,
            rewriter_tasks(catalog.rewriter, settings),
        ),
        finetunes=finetunes,
        uploads=Uploads(finetunes, objects, settings, catalog),
        eraser=Eraser(redis, prefix, objects),
        replicas=replicas,
        tally=tally or CounterBuffer(),
        models=models,
        estimates=Estimates(tasks, windows, models),
        readiness=Readiness(tasks, objects, prober),
    )
    try:
        await snapshot.check_whole(redis, prefix)
        await fold_stored_names(redis, prefix)
        await _give_first_credits(services)
        loops = Loops({"log levels": LogLevels(redis, prefix, settings.logs.levels).follow})
        try:
            async with services.tally.flush_periodically(redis, prefix):
                yield services
        finally:
            await loops.stop()
    finally:
        inputs.close()
        await asyncio.to_thread(tracer.close)
        await completions.close()
        await prober.aclose()
        await redis.aclose()


def _openid(settings: Settings, redis: Redis) -> OpenId | None:
    provider = settings.accounts.openid_provider()
    return None if provider is None else OpenId(redis, settings.redis.prefix, provider, fetch_keys)


async def _give_first_credits(services: Services) -> None:
    """Once in the life of a store, whoever comes first."""
    amount = round(services.settings.accounts.first_credits * 1000)
    await services.credits.grant(DEFAULT_ORGANIZATION, "first", amount, by="settings", note="accounts.first_credits")


# Asynchronous, though it awaits nothing: FastAPI would send a plain function to a thread, at every request.
async def _services(request: Request) -> Services:
    return request.app.state.services


Deps = Annotated[Services, Depends(_services)]
