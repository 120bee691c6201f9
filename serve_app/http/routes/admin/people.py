"""People who sign in by a password: what an operator does for those who forgot it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path

from serve_app.accounts.sessions import Kind
from serve_app.http.auth import Operator
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps

router = APIRouter(prefix="/people")


@router.delete("/{person:path}", status_code=204, responses=errors(403, 404, 503))
async def delete_person(services: Deps, caller: Operator, person: Annotated[str, Path(max_length=200)]) -> None:
    """Takes a password and its sessions away. Whoever is no member any more may be invited by that name again."""
    if not await services.people.forget(person):
        raise HTTPException(404, "There is no one of that name who has a password")
    for organization in await services.organizations.of_person(person):
        await services.leaving.member(person, organization, caller.id)
    await services.sessions.end_all(Kind.PERSON, person)
