"""Liveness, readiness, figures."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from serve_app.http.routes.schemas import errors
from serve_app.http.services import Deps

router = APIRouter(tags=["health"])

_GAUGES = {
    "ready": "Tasks that wait for work",
    "suspects": "Tasks that wait to run alone, after losing several workers",
    "leased": "Tasks that are being worked on",
}


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """This replica answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=errors(503))
async def readyz(services: Deps) -> dict[str, str]:
    """This replica can take work: the task store is in reach."""
    await services.tasks.ping()
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(services: Deps) -> str:
    """Figures in the Prometheus text format. They come from the task store, so every replica answers the same."""
    lines: list[str] = []
    by_lane = {lane: await services.tasks.counts(lane) for lane in services.catalog.models}
    for name, meaning in _GAUGES.items():
        lines += [f"# HELP gen_tasks_{name} {meaning}", f"# TYPE gen_tasks_{name} gauge"]
        lines += [f'gen_tasks_{name}{{lane="{lane}"}} {counts[name]}' for lane, counts in by_lane.items()]
    lines += ["# HELP gen_task_events_total Tasks by what happened to them", "# TYPE gen_task_events_total counter"]
    for lane, counts in by_lane.items():
        for event in sorted(counts.keys() - _GAUGES.keys()):
            label = event.lower().replace(" ", "_")
            lines.append(f'gen_task_events_total{{lane="{lane}",event="{label}"}} {counts[event]}')
    return "\n".join(lines) + "\n"
