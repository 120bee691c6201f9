"""`/v1/admin/…`: organizations and what belongs to them.

Everyone acts in the organization of their key; an operator may name another. Who may do what is in `accounts/roles.py`.
"""

from __future__ import annotations

from fastapi import APIRouter

from serve_app.http.routes.admin import (
    audit,
    credits,
    erasures,
    fleet,
    keys,
    licences,
    members,
    organizations,
    people,
    projects,
    tasks,
)

router = APIRouter(prefix="/v1/admin", tags=["admin"])
for part in (organizations, projects, erasures, members, people, keys, credits, licences, tasks, audit, fleet):
    router.include_router(part.router)
