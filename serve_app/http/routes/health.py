"""Liveness and readiness."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps

ALIVE: Final = "/healthz"
READY: Final = "/readyz"

router = APIRouter(tags=["health"])


@router.get(ALIVE)
async def healthz() -> dict[str, str]:
    """This replica answers."""
    return {"status": "ok"}


@router.get(READY, responses=errors(503))
async def readyz(services: Deps) -> dict[str, str]:
    """This replica can take work: the task store is in reach."""
    await services.tasks.ping()
    return {"status": "ready"}
