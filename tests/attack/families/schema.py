"""Requests that schemathesis makes up from the description: some as it says, some that break it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from requests import Request as Prepared
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok

from attack.attacks import Shot
from attack.stage import OPERATOR
from attack.wire import Request

_FRAMING: Final = frozenset(
    {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade", "x-key"}
)
"""Headers that the connection needs for itself, and the key, without which nothing would be read."""
_WHATEVER_IT_TAKES: Final = (
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
)
_ROLES: Final = ("developer", "administrator", OPERATOR)


def attacks(repository: Path, seed: int, count: int) -> Sequence[Shot]:
    """As many for each operation, of both kinds, by callers of several roles; or of a choice of operations."""
    described = [json.loads((repository / name).read_text()) for name in ("openapi.json", "openapi-admin.json")]
    schemas = [schemathesis.openapi.from_dict(each, config=SchemathesisConfig(seed=seed)) for each in described]
    found = [each for schema in schemas for each in schema.get_all_operations()]
    operations = [each.ok() for each in found if isinstance(each, Ok)]
    kinds = [(operation, mode) for operation in operations for mode in GenerationMode]
    if count < len(kinds):
        kinds = Random(seed).sample(kinds, count)
    return [
        Shot(f"{operation.label} {mode.value} {number}", lambda _, request=request: request, _ROLES[number % 3])
        for operation, mode in kinds
        for number, request in enumerate(_requests(operation, mode, seed, max(1, count // len(kinds))))
    ]


def _requests(operation: Any, mode: GenerationMode, number: int, count: int) -> list[Request]:
    found: list[Request] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=_WHATEVER_IT_TAKES,
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        found.append(_as_sent(case.as_transport_kwargs(base_url="http://127.0.0.1")))

    with contextlib.suppress(Unsatisfiable):  # some operations take nothing that could be wrong
        collect()
    return found


def _as_sent(made: dict[str, Any]) -> Request:
    names = ("method", "url", "headers", "files", "data", "params", "auth", "cookies", "json")
    prepared = Prepared(**{name: made[name] for name in names if name in made}).prepare()
    body = prepared.body or b""
    body = body.encode() if isinstance(body, str) else body
    assert isinstance(body, bytes)
    headers = tuple(
        (name, value if isinstance(value, str) else value.decode("latin-1"))
        for name, value in prepared.headers.items()
        if name.lower() not in _FRAMING
    )
    return Request(prepared.method or "GET", prepared.path_url, body, headers)
