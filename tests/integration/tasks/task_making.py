"""Tasks for tests of the store."""

from __future__ import annotations

import uuid
from typing import Any

from serve_app.tasks.task import NewTask

LANE = "lane"


def new_task(**changes: Any) -> NewTask:
    task_id = changes.pop("id", None) or str(uuid.uuid4())
    defaults: dict[str, Any] = {
        "id": task_id,
        "project": "p",
        "lane": LANE,
        "endpoint": "gen-test",
        "job": "{}",
        "work": 1.0,
        # A key of its own: tests submit faster than any key may.
        "key_id": task_id,
        "reply": f'{{"id": "{task_id}"}}',
    }
    return NewTask(**(defaults | changes))
