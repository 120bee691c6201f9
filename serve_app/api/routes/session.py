"""Routes of browser sessions: sign in, sign out, switch project, change password."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.attempt_limiter import TooManyAttempts
from serve_app.accounts.keys import hash_secret
from serve_app.accounts.members import MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS
from serve_app.accounts.names import fold_name
from serve_app.accounts.projects import DEFAULT_PROJECT, Project
from serve_app.accounts.roles import PERMISSIONS, Permission
from serve_app.accounts.sessions import LOCAL, Session, SubjectType
from serve_app.api.auth import check_origin, drop_session, optional_caller, session_secret, set_session
from serve_app.api.bodies import JsonRoute
from serve_app.api.hosts import client_address
from serve_app.api.routes.schemas import Secret, errors
from serve_app.api.services import Deps, Services

router = APIRouter(prefix="/v1/session", tags=["session"], route_class=JsonRoute)

_WRONG_PASSWORD: Final = "The name or the password is wrong"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PasswordSignIn(_Strict):
    name: Annotated[str, AfterValidator(fold_name)] = Field(min_length=1, max_length=200)
    password: Secret = Field(max_length=MAX_PASSWORD_CHARS)


class KeySignIn(_Strict):
    key: Secret = Field(max_length=200)


class LocalSignIn(_Strict):
    local: bool = Field(description="true: as the local user, if the operator allows it")


class ChangePasswordRequest(_Strict):
    password: Secret = Field(max_length=MAX_PASSWORD_CHARS, description="Current password")
    new: Secret = Field(min_length=MIN_PASSWORD_CHARS, max_length=MAX_PASSWORD_CHARS)


class SwitchProjectRequest(_Strict):
    project: str = Field(max_length=64)


class SessionInfo(BaseModel):
    signed_in: bool
    local: bool = Field(description="True if one may sign in as the local user")
    openid: str | None = Field(default=None, description="Host of the OpenID provider for sign-in")
    name: str | None = None
    by: SubjectType | None = Field(default=None, description="Method of the sign-in")
    role: str | None = None
    permissions: list[str] = []
    organization: str | None = None
    project: str | None = None
    projects: list[str] = Field(default=[], description="Projects to which the session may switch")


@router.get("", responses=errors(503))
async def get_session(request: Request, services: Deps) -> SessionInfo:
    """Returns the signed-in user, if any, and their permissions."""
    caller = await optional_caller(services, request)
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    return await _view(services, caller, session.subject_type if session else None)


@router.post("", responses=errors(403, 429, 503))
async def sign_in(
    request: Request, response: Response, services: Deps, by: PasswordSignIn | KeySignIn | LocalSignIn
) -> SessionInfo:
    """Begins a session, whose secret is a cookie."""
    check_origin(request, services.settings.service)
    match by:
        case PasswordSignIn():
            subject_type, subject, project = await _sign_in_person(services, by, request)
        case KeySignIn():
            subject_type, subject, project = await _sign_in_key(services, by)
        case LocalSignIn():
            subject_type, subject, project = await _sign_in_local(services, by)
    return await begin_session(services, request, response, subject_type, subject, project)


async def begin_session(
    services: Services, request: Request, response: Response, subject_type: SubjectType, subject: str, project: Project
) -> SessionInfo:
    """Begins a session with a new secret, and ends the one before (session fixation)."""
    if old := session_secret(request, services.settings.service):
        await services.auth.sessions.end(old)
        services.auth.session_resolver.forget(old)
    secret = await services.auth.sessions.begin(subject_type, subject, project.organization, project.id)
    if subject_type is SubjectType.PERSON:
        await services.accounts.organizations.set_home(subject, project.organization)
    set_session(response, secret, request, services.settings.service)
    return await _view(services, await services.auth.session_resolver.caller(secret), subject_type)


@router.put("", responses=errors(403, 404, 503))
async def switch_project(request: Request, services: Deps, to: SwitchProjectRequest) -> SessionInfo:
    """Switches the session to another project."""
    check_origin(request, services.settings.service)
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    if secret is None or session is None:
        raise HTTPException(403, "Sign in first")
    project = await services.accounts.projects.find(to.project)
    if project is None or not await _may_switch_to(services, session, project):
        raise HTTPException(404, "There is no such project")
    await services.auth.sessions.move(secret, project.organization, project.id)
    if session.subject_type is SubjectType.PERSON:
        await services.accounts.organizations.set_home(session.subject, project.organization)
    services.auth.session_resolver.forget(secret)
    return await _view(services, await services.auth.session_resolver.caller(secret), session.subject_type)


@router.put("/password", responses=errors(403, 429, 503))
async def change_password(
    request: Request, response: Response, services: Deps, to: ChangePasswordRequest
) -> SessionInfo:
    """Changes the password and ends all other sessions of the person."""
    check_origin(request, services.settings.service)
    secret = session_secret(request, services.settings.service)
    session = None if secret is None else await services.auth.sessions.find(secret)
    if session is None or session.subject_type is not SubjectType.PERSON:
        raise HTTPException(403, "Sign in with a name and password first")
    if not await verify_password(services, request, session.subject, to.password):
        raise HTTPException(403, _WRONG_PASSWORD)
    await services.accounts.people.set_password(session.subject, to.new.get_secret_value())
    await services.auth.sessions.end_all(SubjectType.PERSON, session.subject)
    project = await services.accounts.projects.get(session.project)
    return await begin_session(services, request, response, SubjectType.PERSON, session.subject, project)


@router.delete("", status_code=204, responses=errors(403, 503))
async def sign_out(request: Request, response: Response, services: Deps) -> None:
    check_origin(request, services.settings.service)
    if secret := session_secret(request, services.settings.service):
        await services.auth.sessions.end(secret)
        services.auth.session_resolver.forget(secret)
    drop_session(response)


async def _sign_in_person(services: Services, by: PasswordSignIn, request: Request) -> tuple[SubjectType, str, Project]:
    if not await verify_password(services, request, by.name, by.password):
        raise HTTPException(403, _WRONG_PASSWORD)
    project = await find_first_project(services, by.name)
    if project is None:
        raise HTTPException(403, "You are no member of any organization here")
    return SubjectType.PERSON, by.name, project


async def verify_password(services: Services, request: Request, name: str, password: SecretStr) -> bool:
    address = client_address(request, services.settings.service)
    try:
        return await services.accounts.people.verify(name, password.get_secret_value(), address)
    except TooManyAttempts as refusal:
        raise HTTPException(429, "Too many sign-ins failed", {"Retry-After": str(refusal.retry_s)}) from None


async def find_first_project(services: Services, person: str) -> Project | None:
    """Returns the project in which the person's session begins.

    It is in the organization of their last session, else in the first of theirs that has a project.
    """
    organizations = await services.accounts.organizations.list_for_person(person)
    home = await services.accounts.organizations.get_home(person)
    for organization in sorted(organizations, key=lambda each: each != home):
        if projects := await services.accounts.projects.list(organization):
            return projects[0]
    return None


async def _sign_in_key(services: Services, by: KeySignIn) -> tuple[SubjectType, str, Project]:
    secret = by.key.get_secret_value()
    caller = await services.auth.callers.authenticate(secret)
    if caller is None:
        raise HTTPException(403, "This key is unknown, expired or revoked")
    return SubjectType.KEY, hash_secret(secret), caller.project


async def _sign_in_local(services: Services, by: LocalSignIn) -> tuple[SubjectType, str, Project]:
    if not by.local or services.settings.accounts.local_role is None:
        raise HTTPException(403, "Sign in by name and password, or with a key")
    return SubjectType.LOCAL, LOCAL, await services.accounts.projects.get(DEFAULT_PROJECT)


async def _may_switch_to(services: Services, session: Session, project: Project) -> bool:
    target = Session(session.subject_type, session.subject, project.organization, project.id, session.created)
    return await services.auth.session_resolver.resolve(target) is not None


async def _view(services: Services, caller: Caller | None, by: SubjectType | None) -> SessionInfo:
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
