"""Hostile video files: accepted or refused, in bounded time, and nothing that a file names is opened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from support.pictures import encoded

from attack.attacks import Shot
from attack.mutations import JSON
from attack.stage import Stage
from attack.video_files import FILES, written
from attack.wire import Request

WITHIN_S: Final = 75.0
_ANSWERS: Final = (200, 413, 422)
_PRICED: Final = 0.7
_PATH: Final = "/v1/gen-3-video"


def attacks(repository: Path, seed: int, count: int) -> Sequence[Shot]:
    """Each kind of file in turn, most of them only priced: what is only priced is read like what is submitted."""
    kinds = list(FILES)
    return [_shot(kinds[number % len(kinds)], f"{seed}/{number}") for number in range(count)]


def _shot(kind: str, mark: str) -> Shot:
    priced = Random(f"how {mark}").random() < _PRICED

    def build(stage: Stage) -> Request:
        body: dict[str, Any] = {"mode": "v2v", "prompt": "x", "start_video": encoded(written(kind, mark, stage.origin))}
        if priced:
            return Request("POST", "/v1/pricing", json.dumps({"path": _PATH, "body": body}).encode(), JSON)
        return Request("POST", _PATH, json.dumps(body).encode(), JSON)

    return Shot(f"{kind} {mark}", build, expected=_ANSWERS, within_s=WITHIN_S)
