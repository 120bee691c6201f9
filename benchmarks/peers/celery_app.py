"""FastAPI before, Celery behind, Redis between: the queue that most people build first.

After Celery's guide: FastAPI answers with a task's id and reads its `AsyncResult`; `worker_process_init` loads what a
pool's process holds; long tasks are acknowledged late and reserved one at a time ("Optimizing"), and a lost process
gives its task back (`task_reject_on_worker_lost`), since an image may well be drawn twice. A process may take its time
to load the model (`worker_proc_alive_timeout`). The pool is prefork, the
default, with one process, for there is one model. All else is as it comes, so a task that a whole dead worker had
reserved is handed out again after the visibility timeout of the Redis transport: an hour.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery  # pyright: ignore[reportMissingImports]: only the peers' environment has it
from celery.result import AsyncResult  # pyright: ignore[reportMissingImports]
from celery.signals import worker_process_init  # pyright: ignore[reportMissingImports]
from fastapi import FastAPI

from benchmarks.peers.request import PeerSettings, Request

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
    path.write_bytes(_pipelines[0].draw(Request(**body)))
    return {"pid": os.getpid(), "path": str(path)}


@web.post("/images")
def submit(body: dict[str, Any]) -> dict[str, str]:
    task: Any = draw
    return {"id": task.delay(body).id}


@web.get("/images/{task_id}")
def poll(task_id: str) -> dict[str, Any]:
    task = AsyncResult(task_id, app=app)
    return {"status": task.status, "result": task.result if task.successful() else None}
