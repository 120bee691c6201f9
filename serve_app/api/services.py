"""The services of the HTTP app, opened and closed with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request
from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from deployments.telemetry import create_tracer
from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, CreditStore
from serve_app.accounts.jwt_auth import BearerTokens, fetch_keys
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.licences import LicenceStore
from serve_app.accounts.members import InvitationStore, MembershipRevocation, PersonStore
from serve_app.accounts.names import fold_stored_names
from serve_app.accounts.oauth import AuthorizationStore, OAuthClientStore, TokenAuthentication
from serve_app.accounts.openid import OpenId
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.sessions import SessionResolver, SessionStore
from serve_app.api.model_status import CountReplicas, EtaReader, ModelStatusReader, unknown_replicas
from serve_app.api.readiness import CHECK_LIMIT_S, Readiness
from serve_app.background import BackgroundTasks
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.config.specs import rewriter_tasks
from serve_app.deletion import ProjectDeletion
from serve_app.encryption import Sealer
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.finetunes.upload import FinetuneUploads
from serve_app.inputs.fetch import FetchLimiter
from serve_app.inputs.inputs import Inputs
from serve_app.inputs.links import LinkSigner, get_link_secret
from serve_app.inputs.ssrf import UrlGuard
from serve_app.storage import connection, snapshot
from serve_app.storage.log_levels import LogLevels
from serve_app.storage.tally import CounterBuffer
from serve_app.submission.prepare import SubmissionContext
from serve_app.tasks.notifications import TaskNotifications, WatcherLimit
from serve_app.tasks.serializer import ResultSerializer
from serve_app.tasks.store import TaskStore
from serve_app.tasks.windows import WindowReader
from serve_app.webhooks.outbox import Outbox

ANSWER_S: Final = 4.5
"""Seconds that a request waits for the task store; more than the validity of a submission (`SUBMIT_S`)."""


@dataclass(frozen=True, slots=True)
class AccountServices:
    people: PersonStore
    organizations: OrganizationStore
    projects: ProjectStore
    keys: KeyStore
    invitations: InvitationStore
    credits: CreditStore
    licences: LicenceStore
    audit: AuditLog
    deletion: ProjectDeletion


@dataclass(frozen=True, slots=True)
class AuthServices:
    callers: Callers
    tokens: BearerTokens
    sessions: SessionStore
    session_resolver: SessionResolver
    openid: OpenId | None
    oauth_clients: OAuthClientStore
    authorizations: AuthorizationStore
    token_authentication: TokenAuthentication
    membership_revocation: MembershipRevocation


@dataclass(frozen=True, slots=True)
class TaskServices:
    store: TaskStore
    windows: WindowReader
    notifications: TaskNotifications
    watchers: WatcherLimit
    serializer: ResultSerializer
    models: ModelStatusReader
    etas: EtaReader


@dataclass(frozen=True, slots=True)
class InputServices:
    submission: SubmissionContext
    finetunes: FinetuneRegistry
    uploads: FinetuneUploads


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    catalog: Catalog
    redis: Redis
    objects: ObjectStore
    sealer: Sealer
    links: LinkSigner
    tally: CounterBuffer
    replicas: CountReplicas
    readiness: Readiness
    webhooks: Outbox
    accounts: AccountServices
    auth: AuthServices
    tasks: TaskServices
    inputs: InputServices


@asynccontextmanager
async def open_services(
    settings: Settings, catalog: Catalog, replicas: CountReplicas = unknown_replicas, tally: CounterBuffer | None = None
) -> AsyncIterator[Services]:
    sealer, at_rest = Sealer(settings.sealing_keys), settings.at_rest()
    redis, prefix = connection.connect(settings.redis_url, answer_s=ANSWER_S), settings.redis.prefix
    prober = connection.connect(settings.redis_url, max_connections=2, retries=1, answer_s=CHECK_LIMIT_S)
    store = TaskStore(redis, prefix, settings.tasks.limits(), settings.redis.replication(), at_rest)
    windows, notifications = WindowReader(store), TaskNotifications(redis, prefix)
    models = ModelStatusReader(store, windows, catalog.models, replicas)
    objects = ObjectStore(settings.objects_url, settings.objects.options)
    links = LinkSigner(await get_link_secret(redis, prefix))
    guard, service = UrlGuard(settings.network.allow), settings.service
    tracer = create_tracer(settings.tracing.spec(), "ingress")
    inputs = Inputs(guard, service.decoders, FetchLimiter.from_settings(settings.network), service.public_url)
    finetunes = FinetuneRegistry(redis, prefix, at_rest)
    accounts = AccountServices(
        people=PersonStore(redis, prefix),
        organizations=OrganizationStore(redis, prefix),
        projects=ProjectStore(redis, prefix),
        keys=KeyStore(redis, prefix),
        invitations=InvitationStore(redis, prefix),
        credits=CreditStore(redis, prefix),
        licences=LicenceStore(redis, prefix),
        audit=AuditLog(redis, prefix),
        deletion=ProjectDeletion(redis, prefix, objects),
    )
    services = Services(
        settings=settings,
        catalog=catalog,
        redis=redis,
        objects=objects,
        sealer=sealer,
        links=links,
        tally=tally or CounterBuffer(),
        replicas=replicas,
        readiness=Readiness(store, objects, prober, notifications),
        webhooks=Outbox(redis, prefix, settings.webhooks, at_rest),
        accounts=accounts,
        auth=_auth_services(settings, redis, sealer, accounts),
        tasks=TaskServices(
            store=store,
            windows=windows,
            notifications=notifications,
            watchers=WatcherLimit(service.max_ongoing_requests),
            serializer=ResultSerializer(objects, links, settings.links.image_life_s, settings.links.video_life_s),
            models=models,
            etas=EtaReader(store, windows, models),
        ),
        inputs=InputServices(
            submission=SubmissionContext(
                store,
                objects,
                guard,
                inputs,
                finetunes.weights,
                sealer.seal,
                tracer,
                rewriter_tasks(catalog.rewriter, settings),
            ),
            finetunes=finetunes,
            uploads=FinetuneUploads(finetunes, objects, settings, catalog),
        ),
    )
    try:
        await snapshot.check_whole(redis, prefix)
        await fold_stored_names(redis, prefix)
        first_credits = round(settings.accounts.first_credits * 1000)
        note = "accounts.first_credits"  # a grant of this id is made once
        await accounts.credits.grant(DEFAULT_ORGANIZATION, "first", first_credits, by="settings", note=note)
        loops = BackgroundTasks({"log levels": LogLevels(redis, prefix, settings.logs.levels).follow})
        try:
            async with services.tally.flush_periodically(redis, prefix):
                yield services
        finally:
            await loops.stop()
    finally:
        inputs.close()
        await asyncio.to_thread(tracer.close)
        await notifications.close()
        await prober.aclose()
        await redis.aclose()


def _auth_services(settings: Settings, redis: Redis, sealer: Sealer, accounts: AccountServices) -> AuthServices:
    prefix = settings.redis.prefix
    callers, sessions = Callers(redis, prefix), SessionStore(redis, prefix)
    authorizations = AuthorizationStore(redis, prefix)
    session_resolver = SessionResolver(
        sessions, callers, accounts.organizations, accounts.projects, settings.accounts.local_role
    )
    return AuthServices(
        callers=callers,
        tokens=BearerTokens(settings.accounts.issuers, fetch_keys, accounts.projects, accounts.organizations),
        sessions=sessions,
        session_resolver=session_resolver,
        openid=OpenId(redis, prefix, openid, fetch_keys) if (openid := settings.accounts.openid) else None,
        oauth_clients=OAuthClientStore(redis, prefix, sealer.seal, sealer.open_or_none),
        authorizations=authorizations,
        token_authentication=TokenAuthentication(authorizations, session_resolver),
        membership_revocation=MembershipRevocation(sessions, authorizations, accounts.invitations),
    )


# Asynchronous, because FastAPI runs a plain function in a thread.
async def _services(request: Request) -> Services:
    return request.app.state.services


Deps = Annotated[Services, Depends(_services)]
