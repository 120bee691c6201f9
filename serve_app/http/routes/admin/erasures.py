"""Erasing what a project has, and the proof of it."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from serve_app.accounts.erasures import Erasure as StoredErasure
from serve_app.http.auth import ProjectMaker
from serve_app.http.json_route import JsonRoute
from serve_app.http.routes.admin.projects import ProjectPath
from serve_app.http.routes.admin.scope import project_within
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps
from serve_app.submission.errors import Invalid

router = APIRouter(prefix="/projects/{project}/erasure", route_class=JsonRoute)

_WITHIN_S: Final = 20.0
"""Of one request: less than clients and proxies wait for an answer."""


class EraseProjectRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    project: str = Field(max_length=64, description="The project's id once more: what is erased is gone")


class ErasedCounts(BaseModel):
    tasks: int
    deliveries: int = Field(description="Of webhooks, with all attempts")
    replies: int = Field(description="To requests with an idempotency key, and to calls of dispatchers")
    finetunes: int
    names: int = Field(description="Of keys, which stay under their ids, and in the audit log")
    objects: int = Field(description="Inputs, results, previews, drafts, weights of tuned models")


class Erasure(BaseModel):
    project: str
    by: str
    began: float = Field(description="Epoch seconds; the project is closed since")
    done: float | None = Field(description="Epoch seconds; null: not yet, ask for it again")
    erased: ErasedCounts
    remaining_ledger_entries: int | None = Field(
        description="Of the organization's ledger about this project: amounts, times and ids, which are its books"
    )
    keys_looked_through: int | None = Field(description="Of the whole store in the end: nothing else is left in it")


@router.post("", responses=errors(403, 404, 503))
async def erase_project(
    services: Deps, caller: ProjectMaker, project: ProjectPath, confirmation: EraseProjectRequest
) -> Erasure:
    """Closes the project and erases what it has: tasks with their inputs and results, webhooks, tuned models, replies.

    Running tasks are stopped and cost nothing. Answers after at most about 20 s with what was erased so far: ask again
    until `done` is there. The project stays closed until it is opened again.
    """
    if confirmation.project != project:
        raise Invalid(["body", "project"], "must be the id of the project whose data is to be erased", "not_confirmed")
    stored = await project_within(services, caller, project)
    return _shown(await services.eraser.erase(stored, caller.id, _WITHIN_S))


@router.get("", responses=errors(403, 404, 503))
async def get_erasure(services: Deps, caller: ProjectMaker, project: ProjectPath) -> Erasure:
    """How far the latest erasure of the project is, and once it is done, the proof of it."""
    stored = await project_within(services, caller, project)
    found = await services.erasures.get(stored.id)
    if found is None:
        raise HTTPException(404, "Nothing of this project was erased")
    return _shown(found)


def _shown(erasure: StoredErasure) -> Erasure:
    return Erasure(
        project=erasure.project,
        by=erasure.by,
        began=erasure.began,
        done=erasure.done,
        erased=ErasedCounts(**erasure.deleted),
        remaining_ledger_entries=erasure.ledger,
        keys_looked_through=erasure.looked_at,
    )
