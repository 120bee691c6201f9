"""Routes of browser sessions: sign in, sign out, switch project, change password."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.attempt_limiter import TooOften
from serve_app.accounts.keys import hash_secret
from serve_app.accounts.members import LONGEST_PASSWORD, SHORTEST_PASSWORD
from serve_app.accounts.names import fold_name
from serve_app.accounts.projects import DEFAULT_PROJECT, Project
from serve_app.accounts.roles import PERMISSIONS, Permission
from serve_app.accounts.sessions import LOCAL, Kind, Session
from serve_app.api.auth import check_origin, drop_session, optional_caller, session_secret, set_session
from serve_app.api.bodies import JsonRoute
from serve_app.api.hosts import client_address
from serve_app.api.routes.schemas import Secret, errors
from serve_app.api.services import Deps, Services

router = APIRouter(prefix="/v1/session", tags=["session"], route_class=JsonRoute)

_WRONG = "No one of that name and password"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PasswordSignIn(_Strict):
    name: Annotated[str, AfterValidator(fold_name)] = Field(min_length=1, max_length=200)
    password: Secret = Field(max_length=LONGEST_PASSWORD)


class KeySignIn(_Strict):
    key: Secret = Field(max_length=200)


class LocalSignIn(_Strict):
    local: bool = Field(description="true: as whoever sits at this machine, where the operator allows it")


class ChangePasswordRequest(_Strict):
    password: Secret = Field(max_length=LONGEST_PASSWORD, description="The one so far")
    new: Secret = Field(min_length=SHORTEST_PASSWORD, max_length=LONGEST_PASSWORD)


class SwitchProjectRequest(_Strict):
    project: str = Field(max_length=64)


class SessionInfo(BaseModel):
    signed_in: bool
    local: bool = Field(description="Whether one may sign in as whoever sits at this machine")
    openid: str | None = Field(default=None, description="By whose accounts one may sign in, too")
    name: str | None = None
    by: Kind | None = Field(default=None, description="How they signed in")
    role: str | None = None
    permissions: list[str] = []
    organization: str | None = None
    project: str | None = None
    projects: list[str] = Field(default=[], description="Which one may be in")


@router.get("", responses=errors(503))
async def get_session(request: Request, services: Deps) -> SessionInfo:
    """Who is signed in, if anyone is, and what they may."""
    caller = await optional_caller(services, request)
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    return await _view(services, caller, session.kind if session else None)


@router.post("", responses=errors(403, 429, 503))
async def sign_in(
    request: Request, response: Response, services: Deps, by: PasswordSignIn | KeySignIn | LocalSignIn
) -> SessionInfo:
    """Begins a session: a cookie of this browser."""
    check_origin(request, services.settings.service)
    match by:
        case PasswordSignIn():
            kind, subject, project = await _sign_in_person(services, by, request)
        case KeySignIn():
            kind, subject, project = await _sign_in_key(services, by)
        case _:
            kind, subject, project = await _sign_in_local(services, by)
    return await begin(services, request, response, kind, subject, project)


async def begin(
    services: Services, request: Request, response: Response, kind: Kind, subject: str, project: Project
) -> SessionInfo:
    """A new session instead of whatever was there: nobody else may have set its cookie."""
    if old := session_secret(request, services.settings.service):
        await services.auth.sessions.end(old)
        services.auth.session_resolver.forget(old)
    secret = await services.auth.sessions.begin(kind, subject, project.organization, project.id)
    if kind is Kind.PERSON:
        await services.accounts.organizations.set_home(subject, project.organization)
    set_session(response, secret, request, services.settings.service)
    return await _view(services, await services.auth.session_resolver.caller(secret), kind)


@router.put("", responses=errors(403, 404, 503))
async def switch_project(request: Request, services: Deps, to: SwitchProjectRequest) -> SessionInfo:
    """Goes on in another project."""
    check_origin(request, services.settings.service)
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    if secret is None or session is None:
        raise HTTPException(403, "Nobody is signed in")
    project = await services.accounts.projects.find(to.project)
    if project is None or not await _may_be_in(services, session, project):
        raise HTTPException(404, "There is no such project")
    await services.auth.sessions.move(secret, project.organization, project.id)
    if session.kind is Kind.PERSON:
        await services.accounts.organizations.set_home(session.subject, project.organization)
    services.auth.session_resolver.forget(secret)
    return await _view(services, await services.auth.session_resolver.caller(secret), session.kind)


@router.put("/password", responses=errors(403, 429, 503))
async def change_password(
    request: Request, response: Response, services: Deps, to: ChangePasswordRequest
) -> SessionInfo:
    """Ends all other sessions of whoever is signed in."""
    check_origin(request, services.settings.service)
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    if session is None or session.kind is not Kind.PERSON:
        raise HTTPException(403, "Nobody is signed in by a password")
    await _check_password(services, session.subject, to.password, request)
    await services.accounts.people.set_password(session.subject, to.new.get_secret_value())
    await services.auth.sessions.end_all(Kind.PERSON, session.subject)
    project = await services.accounts.projects.get(session.project)
    return await begin(services, request, response, Kind.PERSON, session.subject, project)


@router.delete("", status_code=204, responses=errors(403, 503))
async def sign_out(request: Request, response: Response, services: Deps) -> None:
    check_origin(request, services.settings.service)
    if secret := session_secret(request, services.settings.service):
        await services.auth.sessions.end(secret)
        services.auth.session_resolver.forget(secret)
    drop_session(response)


async def _sign_in_person(services: Services, by: PasswordSignIn, request: Request) -> tuple[Kind, str, Project]:
    await _check_password(services, by.name, by.password, request)
    project = await find_first_project(services, by.name)
    if project is None:
        raise HTTPException(403, "You are no member of any organization here")
    return Kind.PERSON, by.name, project


async def _check_password(services: Services, name: str, password: SecretStr, request: Request) -> None:
    address = client_address(request, services.settings.service)
    try:
        right = await services.accounts.people.verify(name, password.get_secret_value(), address)
    except TooOften as refusal:
        raise HTTPException(429, "Too many sign-ins failed", {"Retry-After": str(refusal.retry_s)}) from None
    if not right:
        raise HTTPException(403, _WRONG)


async def find_first_project(services: Services, person: str) -> Project | None:
    """Returns where their session begins: in the organization that they were in last, else in the first of theirs that
    has a project. Another organization that makes them a member changes nothing of it."""
    own, home = (
        await services.accounts.organizations.list_for_person(person),
        await services.accounts.organizations.get_home(person),
    )
    for organization in sorted(own, key=lambda each: each != home):
        if projects := await services.accounts.projects.list(organization):
            return projects[0]
    return None


async def _sign_in_key(services: Services, by: KeySignIn) -> tuple[Kind, str, Project]:
    secret = by.key.get_secret_value()
    caller = await services.auth.callers.authenticate(secret)
    if caller is None:
        raise HTTPException(403, "Not authenticated - Invalid Authentication")
    return Kind.KEY, hash_secret(secret), caller.project


async def _sign_in_local(services: Services, by: LocalSignIn) -> tuple[Kind, str, Project]:
    if not by.local or services.settings.accounts.local_role is None:
        raise HTTPException(403, "Sign in by name and password, or with a key")
    return Kind.LOCAL, LOCAL, await services.accounts.projects.get(DEFAULT_PROJECT)


async def _may_be_in(services: Services, session: Session, project: Project) -> bool:
    target = Session(session.kind, session.subject, project.organization, project.id, session.created)
    return await services.auth.session_resolver.resolve(target) is not None


async def _view(services: Services, caller: Caller | None, by: Kind | None) -> SessionInfo:
    local = services.settings.accounts.local_role is not None
    openid = None if services.auth.openid is None else urlsplit(services.auth.openid.issuer).hostname
    if caller is None:
        return SessionInfo(signed_in=False, local=local, openid=openid)
    projects = [caller.project.id]
    if caller.may(Permission.READ_ACCOUNTS):
        projects = [project.id for project in await services.accounts.projects.list(caller.organization)]
    return SessionInfo(
        signed_in=True,
        local=local,
        openid=openid,
        name=caller.id,
        by=by,
        role=caller.role.value,
        permissions=sorted(permission.value for permission in PERMISSIONS[caller.role] if caller.may(permission)),
        organization=caller.organization,
        project=caller.project.id,
        projects=projects,
    )
