"""FastAPI, Celery and Redis: the queue that most people build first.

It follows Celery's guide. FastAPI answers with a task's id and reads its `AsyncResult`. `worker_process_init` loads the
model, for which `worker_proc_alive_timeout` leaves time. Tasks are acknowledged late and reserved one at a time, and a
lost process returns its task (`task_reject_on_worker_lost`), since an image can be drawn twice. The pool is prefork,
the default, with one process for the one model. Other settings are the defaults: a task that a dead worker had reserved
is delivered again after the visibility timeout of the Redis transport, an hour.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery  # pyright: ignore[reportMissingImports]: only the peers' environment has it
from celery.result import AsyncResult  # pyright: ignore[reportMissingImports]
from celery.signals import worker_process_init  # pyright: ignore[reportMissingImports]
from fastapi import FastAPI

from benchmarks.peers.request import PeerRequest, PeerSettings

if TYPE_CHECKING:
    from benchmarks.peers.stock import StockPipeline

settings = PeerSettings.from_environment()
app = Celery("images", broker=settings.redis_url, backend=settings.redis_url)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_proc_alive_timeout=120,
    broker_connection_retry_on_startup=True,
)
web = FastAPI()
_pipelines: list[StockPipeline] = []


@worker_process_init.connect
def load(**_: object) -> None:
    from benchmarks.peers.stock import StockPipeline

    _pipelines.append(StockPipeline(settings.checkpoint, int(settings.threads)))


@app.task(bind=True)
def draw(self: Any, body: dict[str, Any]) -> dict[str, Any]:
    path = Path(settings.folder) / f"{self.request.id}.jpeg"
    path.write_bytes(_pipelines[0].draw(PeerRequest(**body)))
    return {"pid": os.getpid(), "path": str(path)}


@web.post("/images")
def submit(body: dict[str, Any]) -> dict[str, str]:
    task: Any = draw
    return {"id": task.delay(body).id}


@web.get("/images/{task_id}")
def poll(task_id: str) -> dict[str, Any]:
    task = AsyncResult(task_id, app=app)
    return {"status": task.status, "result": task.result if task.successful() else None}
