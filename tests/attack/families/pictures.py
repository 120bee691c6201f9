"""Hostile picture files wherever a picture is taken: accepted or refused, in bounded time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from support.pictures import encoded, picture

from attack.attacks import Shot
from attack.mutations import JSON
from attack.picture_files import FILES, written
from attack.stage import Stage
from attack.wire import Request

_SMALL: Final = encoded(picture())
_FIELDS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("gen-3-image-klein", "images", {"prompt": "x"}),
    ("gen-2-max", "input_image", {"prompt": "x"}),
    ("gen-kontext-pro", "input_image_4", {"prompt": "x"}),
    ("gen-pro", "image_prompt", {}),
    ("gen-pro-1.0-fill", "image", {"mask": _SMALL}),
    ("gen-pro-1.0-fill", "mask", {"image": _SMALL}),
    ("gen-pro-1.0-canny", "control_image", {"prompt": "x"}),
    ("gen-tools/erase-v1", "mask", {"image": _SMALL}),
    ("gen-tools/outpainting-v1", "input_image", {"width": 1024, "height": 1024}),
    ("gen-tools/vto-v1", "garment", {"person": _SMALL}),
    ("gen-tools/vto-v2", "person", {"garment": _SMALL}),
    ("gen-tools/deblur-v1", "image", {}),
    ("gen-3-video", "keyframes", {"mode": "i2v", "prompt": "x"}),
)
_LISTS: Final = frozenset({"images", "keyframes"})
_ANSWERS: Final = (200, 413, 422)
_PRICED: Final = 0.5
"""What is only priced is read like what is submitted."""
WITHIN_S: Final = 15.0


def attacks(repository: Path, seed: int, count: int) -> Sequence[Shot]:
    """Each kind of file in turn, each in a field picked at random, alone or eight at a time."""
    kinds = list(FILES)
    return [_shot(kinds[number % len(kinds)], f"{seed}/{number}") for number in range(count)]


def _shot(kind: str, mark: str) -> Shot:
    random = Random(f"where {mark}")
    endpoint, field, others = random.choice(_FIELDS)
    times = random.choice((1, 1, 1, 8)) if field in _LISTS else 1
    role = "viewer" if (priced := random.random() < _PRICED) else "developer"
    name = f"{endpoint} {field}{f' x{times}' if times > 1 else ''}: {kind} {mark}"
    return Shot(name, _building(kind, mark, endpoint, field, others, times, priced), role, _ANSWERS, WITHIN_S)


def _building(
    kind: str, mark: str, endpoint: str, field: str, others: dict[str, Any], times: int, priced: bool
) -> Callable[[Stage], Request]:
    def build(stage: Stage) -> Request:
        file = encoded(written(kind, mark))
        body = {**others, field: [file] * times if field in _LISTS else file}
        if priced:
            return Request("POST", "/v1/pricing", json.dumps({"path": f"/v1/{endpoint}", "body": body}).encode(), JSON)
        return Request("POST", f"/v1/{endpoint}", json.dumps(body).encode(), JSON)

    return build
