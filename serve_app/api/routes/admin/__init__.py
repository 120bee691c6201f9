"""The routes `/v1/admin/…`: organizations, projects, keys, members and credits.

A caller acts in the organization of their key; an operator may name another. `accounts/roles.py` has the permissions.
"""

from __future__ import annotations

from fastapi import APIRouter

from serve_app.api.routes.admin import credits, fleet, keys, members, organizations, projects

router = APIRouter(prefix="/v1/admin", tags=["admin"])
for part in (organizations, projects, members, keys, credits, fleet):
    router.include_router(part.router)
