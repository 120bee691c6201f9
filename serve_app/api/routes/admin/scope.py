"""The scope of admin routes: the caller's organization, or any for an operator."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Final

from fastapi import HTTPException, Query
from pydantic import BeforeValidator

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.credits import MAX_DAYS
from serve_app.accounts.projects import Project
from serve_app.accounts.roles import Permission
from serve_app.api.services import Services
from serve_app.submission.errors import Invalid

LATER: Final = {"Retry-After": "60"}
"""Header of responses about a reached limit."""

OrganizationId = Annotated[
    str | None, Query(max_length=64, description="By default the key's; only operators may name another")
]


def _iso(day: object) -> object:
    if not isinstance(day, str) or re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", day) is None:
        raise ValueError("must be a day like 2026-01-31")
    return day


# Pydantic accepts a plain number as seconds since 1970.
Day = Annotated[date, BeforeValidator(_iso)]
PageLimit = Annotated[int, Query(ge=1, le=1000)]
Before = Annotated[
    str | None,
    Query(pattern=r"^[1-9][0-9]{0,18}-[0-9]{1,18}$", description="`next` of the previous page"),
]


def days_between(since: date | None, until: date | None, today: date) -> tuple[date, date]:
    """Returns first and last day of a report. Raises Invalid for days out of order, or too many."""
    last = until or today
    first = since or last.replace(day=1)
    if last < first:
        raise Invalid(["query", "until"], "must not be before since")
    if (last - first).days >= MAX_DAYS:
        raise Invalid(["query", "since"], f"at most {MAX_DAYS} days in one report")
    return first, last


async def resolve_organization(services: Services, caller: Caller, organization: str | None) -> str:
    """Returns the organization of the request. Raises 404 for one that the caller may not access."""
    if organization is None or organization == caller.organization:
        return caller.organization
    if not caller.may(Permission.OPERATE) or await services.accounts.organizations.get(organization) is None:
        raise HTTPException(404, "There is no such organization")
    return organization


async def project_within(services: Services, caller: Caller, project_id: str) -> Project:
    """Returns a project of the caller's organization, or of any for an operator. Raises 404."""
    project = await services.accounts.projects.find(project_id)
    if project is None or not (project.organization == caller.organization or caller.may(Permission.OPERATE)):
        raise HTTPException(404, "There is no such project")
    return project
