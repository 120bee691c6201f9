"""The audit log: who changed what in the organization."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from serve_app.http.auth import AuditReader
from serve_app.http.routes.admin.scope import Before, OrganizationId, PageLimit, scoped
from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps

router = APIRouter(prefix="/audit")


class AuditEntry(BaseModel):
    id: str
    at: float = Field(description="Epoch seconds")
    actor: str = Field(description="The id of a key, whom a token named, or `command line`")
    action: str
    subject: str
    details: dict[str, str]


class AuditPage(BaseModel):
    changes: list[AuditEntry]
    next: str | None = Field(description="`before` of the next page; null on the last one")


@router.get("", responses=errors(403, 404, 503))
async def list_audit_entries(
    services: Deps,
    caller: AuditReader,
    organization: OrganizationId = None,
    limit: PageLimit = 100,
    before: Before = None,
) -> AuditPage:
    """All changes, newest first."""
    found, following = await services.audit.read(await scoped(services, caller, organization), limit, before)
    return AuditPage(
        changes=[
            AuditEntry(
                id=each.id,
                at=each.at,
                actor=each.actor,
                action=each.action,
                subject=each.subject,
                details=dict(each.details),
            )
            for each in found
        ],
        next=following,
    )
