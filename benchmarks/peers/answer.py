"""How peers tell over HTTP what they did: a picture as the body, and the facts of it in a header."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.peers.request import Request
from benchmarks.work import Work

if TYPE_CHECKING:
    from benchmarks.peers.stock import Picture

FACTS = "x-facts"


def facts(picture: Picture) -> dict[str, Any]:
    """To be called in the process that drew it."""
    return {"work": asdict(picture.work), "started": picture.started, "pid": os.getpid()}


def headers(picture: Picture) -> dict[str, str]:
    return {FACTS: json.dumps(facts(picture))}


def request_of(body: Mapping[str, Any]) -> Request:
    return Request(**body)


def work_of(told: Mapping[str, Any]) -> Work:
    return Work.from_json(told["work"])
