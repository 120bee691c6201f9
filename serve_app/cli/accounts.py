"""What commands about accounts are given, checked: ids that fit, things that are there."""

from __future__ import annotations

import math
import re

from redis.asyncio import Redis

from serve_app.accounts.authorizations import Authorizations
from serve_app.accounts.invitations import InvitationStore
from serve_app.accounts.leaving import Leaving
from serve_app.accounts.organizations import NAME, OrganizationStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.sessions import SessionStore


def name(text: str) -> str:
    """Raises ValueError for what can't be the id of an organization or a project."""
    if not re.fullmatch(NAME, text):
        raise ValueError(f"{text!r} can't be an id: up to 64 letters, digits, dots, dashes and underscores")
    return text


def millicredits(credits: float) -> int:
    if not math.isfinite(credits):
        raise ValueError("the number of credits must be finite")
    return round(credits * 1000)


async def check_organization(redis: Redis, prefix: str, organization: str) -> None:
    """Raises ValueError for one that is not there."""
    if await OrganizationStore(redis, prefix).get(organization) is None:
        raise ValueError(f"there is no organization {organization}")


async def found_project(redis: Redis, prefix: str, project_id: str) -> Project:
    """Raises ValueError for one that is not there."""
    project = await ProjectStore(redis, prefix).find(project_id)
    if project is None:
        raise ValueError(f"there is no project {project_id}; gen-serve projects create {project_id} makes it")
    return project


def leaving(redis: Redis, prefix: str) -> Leaving:
    return Leaving(SessionStore(redis, prefix), Authorizations(redis, prefix), InvitationStore(redis, prefix))
