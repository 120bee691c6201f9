"""What the routes work with: one of each, opened with the app and closed with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request
from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from deployments.telemetry.tracing import tracer_of
from serve_app.accounts import jwks
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.authorizations import Acting, Authorizations
from serve_app.accounts.bearer import BearerTokens
from serve_app.accounts.callers import Callers
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Credits
from serve_app.accounts.invitations import InvitationStore
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.leaving import Leaving
from serve_app.accounts.licences import LicenceStore
from serve_app.accounts.openid import OpenId
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.people import People
from serve_app.accounts.programs import Programs
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.sessions import SessionStore, SignedIn
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.erasure import Eraser
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.finetunes.upload import Uploads
from serve_app.http.model_states import AskReplicas, ModelStates, unknown_replicas
from serve_app.http.readiness import Readiness
from serve_app.http.watchers import Watchers
from serve_app.loops import Loops
from serve_app.media.fetching import FetchTurns
from serve_app.media.inputs import Inputs
from serve_app.media.links import LinkSigner, shared_secret
from serve_app.media.url_guard import UrlGuard
from serve_app.redis_store import connection, snapshot
from serve_app.redis_store.log_levels import LogLevels
from serve_app.redis_store.tally import Tally
from serve_app.sealing.at_rest import Sealer
from serve_app.submission.dependencies import Dependencies
from serve_app.tasks.completions import Completions
from serve_app.tasks.presentation import Presenter
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox

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
    programs: Programs
    authorizations: Authorizations
    acting: Acting
    leaving: Leaving
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
        tokens=BearerTokens(settings.accounts.trusted(), jwks.fetch, projects, organizations),
        people=People(redis, prefix),
        sessions=sessions,
        signed_in=signed_in,
        openid=_openid(settings, redis),
        invitations=invitations,
        programs=Programs(redis, prefix, sealer.seal, sealer.opened),
        authorizations=authorizations,
        acting=Acting(authorizations, signed_in),
        leaving=Leaving(sessions, authorizations, invitations),
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
    return None if provider is None else OpenId(redis, settings.redis.prefix, provider, jwks.fetch)


async def _give_first_credits(services: Services) -> None:
    """Once in the life of a store, whoever comes first."""
    amount = round(services.settings.accounts.first_credits * 1000)
    await services.credits.grant(DEFAULT_ORGANIZATION, "first", amount, by="settings", note="accounts.first_credits")


# Asynchronous, though it awaits nothing: FastAPI would send a plain function to a thread, at every request.
async def _services(request: Request) -> Services:
    return request.app.state.services


Deps = Annotated[Services, Depends(_services)]
