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
from typing import Annotated, Final, Generic, Literal, TypeAlias, TypeVar

from fastapi import Depends, Request
from redis.asyncio import Redis
from redis.exceptions import RedisError

from deployments.contract.objects import UNREACHABLE, ObjectStore
from deployments.telemetry.tracing import tracer_of
from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Credits
from serve_app.accounts.jwt_auth import BearerTokens, fetch_keys
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.licences import LicenceStore
from serve_app.accounts.members import InvitationStore, MembershipRevocation, People
from serve_app.accounts.oauth import Authorizations, OAuthClients, TokenAuthentication
from serve_app.accounts.openid import OpenId
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.sessions import SessionStore, SignedIn
from serve_app.background import Loops
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.deletion import Eraser
from serve_app.encryption import Sealer
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.finetunes.upload import Uploads
from serve_app.inputs.fetch import FetchTurns
from serve_app.inputs.inputs import Inputs
from serve_app.inputs.links import LinkSigner, shared_secret
from serve_app.inputs.url_guard import UrlGuard
from serve_app.storage import connection, snapshot
from serve_app.storage.pages import LogLevels
from serve_app.storage.tally import Tally
from serve_app.submission.prepare import Dependencies
from serve_app.tasks.notifications import Completions
from serve_app.tasks.store import TaskStore
from serve_app.tasks.views import Presenter, load_of
from serve_app.webhooks.outbox import Outbox

logger = logging.getLogger(__name__)

_MOST_OF_ONE: Final = 32
"""Who follow one task in this process."""


class Watchers:
    """Waiting polls and streams of events. Half of what a replica works on at a time is left to everybody else."""

    def __init__(self, max_ongoing_requests: int) -> None:
        self._most = max(1, max_ongoing_requests // 2)
        self._all = 0
        self._of: Counter[str] = Counter()

    @contextlib.contextmanager
    def one_more(self, task_id: str) -> Iterator[bool]:
        """Whether there is room to wait; without, the task is to be told as it is now, and asked for again."""
        if self._of[task_id] >= _MOST_OF_ONE or self._all >= self._most:
            yield False
            return
        self._all += 1
        self._of[task_id] += 1
        try:
            yield True
        finally:
            self._all -= 1
            self._of[task_id] -= 1
            if not self._of[task_id]:
                del self._of[task_id]


T = TypeVar("T")


class SharedAnswer(Generic[T]):
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

    def __init__(self, tasks: TaskStore, objects: ObjectStore) -> None:
        self._tasks = tasks
        self._objects = objects
        self._writable = SharedAnswer(self._takes_objects, _OBJECTS_FRESH_S)
        self._missing = SharedAnswer(self._look, _FRESH_S)

    async def missing(self) -> list[str]:
        """Empty where nothing is."""
        return await self._missing.get()

    async def _look(self) -> list[str]:
        of_store, writable = await asyncio.gather(self._of_store(), self._writable.get())
        return [*of_store, *(() if writable else (NO_OBJECTS,))]

    async def _of_store(self) -> list[str]:
        tasks = self._tasks
        try:
            async with asyncio.timeout(_LIMIT_S):
                used, most = await tasks.memory()
                dispatched = await tasks.has_dispatcher()
        except (RedisError, TimeoutError) as problem:
            logger.warning("not ready, as the task store is out of reach: %s", type(problem).__name__)
            return [NO_STORE]
        full = most > 0 and used > tasks.limits.max_memory * most
        return [*((STORE_FULL,) if full else ()), *(() if dispatched else (NO_DISPATCHER,))]

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

    def __init__(self, tasks: TaskStore, settings: Settings, queues: Iterable[str], replicas: AskReplicas) -> None:
        self._tasks = tasks
        self._settings = settings
        self._queues = tuple(queues)
        self._replicas = replicas
        self._states = SharedAnswer(self._look, _MODEL_STATES_FRESH_S)

    async def of(self, queues: Iterable[str]) -> ModelState:
        """Of what is made by any of these queues: the worst."""
        known = await self._states.get()
        found = [known[queue] for queue in queues]
        states: list[State] = [one.state for one in found if one.state is not None]
        waits = [one.predicted_wait_s for one in found if one.predicted_wait_s is not None]
        worst: State | None = max(states, key=_ORDER.index, default=None)
        return ModelState(worst, max(waits, default=None))

    async def _look(self) -> Mapping[str, ModelState]:
        replicas = await self._known_replicas()
        loads = await asyncio.gather(*(load_of(self._tasks, queue) for queue in self._queues))
        return {
            queue: ModelState(self._state(queue, replicas.get(queue)), load.wait_s)
            for queue, load in zip(self._queues, loads, strict=True)
        }

    async def _known_replicas(self) -> Replicas:
        try:
            async with asyncio.timeout(_MODEL_STATES_LIMIT_S):
                return await self._replicas()
        except Exception as problem:
            # Whoever counts them may be away, while tasks are taken and made.
            logger.warning("it is not known what replicas there are: %s", type(problem).__name__)
            return {}

    def _state(self, queue: str, replicas: Mapping[str, int] | None) -> State | None:
        if replicas is None:
            return None
        if replicas.get(_RUNNING):
            return "ready"
        if any(replicas.get(state) for state in _COMING):
            return "starting"
        return "no replica" if self._settings.model(queue).autoscaling.min_replicas else "scaled to zero"


Replicas: TypeAlias = Mapping[str, dict[str, int]]
"""Of each deployment, how many there are by their state."""
AskReplicas: TypeAlias = Callable[[], Awaitable[Replicas]]


async def unknown_replicas() -> Replicas:
    return {}


ANSWER_S: Final = 4.5
"""How long a request waits for one answer of the task store; more than a submission stays valid (`SUBMIT_S`)."""


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    catalog: Catalog
    redis: Redis
    tasks: TaskStore
    completions: Completions
    watchers: Watchers
    callers: Callers
    tokens: BearerTokens
    people: People
    sessions: SessionStore
    signed_in: SignedIn
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
    links: LinkSigner
    presenter: Presenter
    outbox: Outbox
    submission: Dependencies
    finetunes: FinetuneRegistry
    uploads: Uploads
    eraser: Eraser
    replicas: AskReplicas
    tally: Tally
    models: ModelStates
    readiness: Readiness


@asynccontextmanager
async def opened(
    settings: Settings, catalog: Catalog, replicas: AskReplicas = unknown_replicas, tally: Tally | None = None
) -> AsyncIterator[Services]:
    sealer, at_rest = Sealer(settings.sealing_keys), settings.at_rest()
    redis, prefix = connection.connect(settings.redis_url, answer_s=ANSWER_S), settings.redis.prefix
    tasks = TaskStore(redis, prefix, settings.tasks.limits(), settings.redis.replication(), at_rest)
    completions = Completions(redis, tasks.channel("done"))
    objects = ObjectStore(settings.objects_url, settings.objects.options)
    links = LinkSigner(await shared_secret(redis, prefix))
    finetunes = FinetuneRegistry(redis, prefix, at_rest)
    guard = UrlGuard(settings.network.allow)
    tracer = tracer_of(settings.tracing.spec(), "ingress")
    service = settings.service
    inputs = Inputs(guard, service.decoders, FetchTurns.of(settings.network), service.public_url)
    projects, organizations = ProjectStore(redis, prefix), OrganizationStore(redis, prefix)
    callers, sessions = Callers(redis, prefix), SessionStore(redis, prefix)
    signed_in = SignedIn(sessions, callers, organizations, projects, settings.accounts.local_role)
    authorizations, invitations = Authorizations(redis, prefix), InvitationStore(redis, prefix)
    services = Services(
        settings=settings,
        catalog=catalog,
        redis=redis,
        tasks=tasks,
        completions=completions,
        watchers=Watchers(settings.service.max_ongoing_requests),
        callers=callers,
        tokens=BearerTokens(settings.accounts.trusted(), fetch_keys, projects, organizations),
        people=People(redis, prefix),
        sessions=sessions,
        signed_in=signed_in,
        openid=_openid(settings, redis),
        invitations=invitations,
        oauth_clients=OAuthClients(redis, prefix, sealer.seal, sealer.opened),
        authorizations=authorizations,
        token_authentication=TokenAuthentication(authorizations, signed_in),
        membership_revocation=MembershipRevocation(sessions, authorizations, invitations),
        keys=KeyStore(redis, prefix),
        projects=projects,
        organizations=organizations,
        credits=Credits(redis, prefix),
        licences=LicenceStore(redis, prefix),
        audit=AuditLog(redis, prefix),
        objects=objects,
        links=links,
        presenter=Presenter(objects, links, settings.links.image_life_s, settings.links.video_life_s),
        outbox=Outbox(redis, prefix, settings.webhooks, at_rest),
        submission=Dependencies(tasks, objects, guard, inputs, finetunes.weights, sealer.seal, tracer),
        finetunes=finetunes,
        uploads=Uploads(finetunes, objects, settings, catalog),
        eraser=Eraser(redis, prefix, objects),
        replicas=replicas,
        tally=tally or Tally(),
        models=ModelStates(tasks, settings, catalog.models, replicas),
        readiness=Readiness(tasks, objects),
    )
    try:
        await snapshot.check_whole(redis, prefix)
        await _give_first_credits(services)
        loops = Loops({"log levels": LogLevels(redis, prefix, settings.logs.levels).follow})
        try:
            async with services.tally.kept(redis, prefix):
                yield services
        finally:
            await loops.stop()
    finally:
        inputs.close()
        await asyncio.to_thread(tracer.close)
        await completions.close()
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
