"""Liveness and readiness routes."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from serve_app.api.errors import SHORTLY
from serve_app.api.services import Deps
from serve_app.config.replicas import installed_release

ALIVE: Final = "/healthz"
READY: Final = "/readyz"

router = APIRouter(tags=["health"])


class NotReady(BaseModel):
    detail: str
    code: str
    missing: list[str] = Field(description="A sentence for each missing requirement")


_MISSING: Final[dict[int | str, dict[str, Any]]] = {503: {"model": NotReady, "description": "Not ready"}}


@router.get(ALIVE)
async def get_health() -> dict[str, str]:
    """Confirms that this replica is up, and returns its release."""
    return {"status": "ok", "version": installed_release()}


@router.get(READY, response_model=dict[str, str], responses=_MISSING)
async def get_readiness(services: Deps) -> dict[str, str] | JSONResponse:
    """Tells whether new tasks can run: the task store works and has room, the object store accepts objects, and a
    dispatcher runs."""
    missing = await services.readiness.missing()
    if missing:
        body = {"detail": f"Not ready: {'; '.join(missing)}", "code": "not_ready", "missing": missing}
        return JSONResponse(body, status_code=503, headers=SHORTLY)
    return {"status": "ready"}
