"""What attacks begin with, as files.

`bodies`: real requests, one or more of each endpoint that takes JSON, as honest clients send them. `urls.json`:
addresses that the service must not ask, `{port}` for that of the attackers' listener. `values.json`: values for any
place in a JSON body, as they are written there, and content types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    method: str
    path: str
    """What stands in braces, here and in the body, is the attackers' own."""
    role: str
    status: int
    """What it is answered with when it is sent as it is."""
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beside those that go with a body."""


@dataclass(frozen=True, slots=True)
class Urls:
    direct: Sequence[str]
    redirected_to: Sequence[str]
    """What a server that may be asked names as the next address."""


@dataclass(frozen=True, slots=True)
class Values:
    numbers: Sequence[str]
    texts: Sequence[str]
    content_types: Sequence[str]


@cache
def samples() -> Sequence[Sample]:
    files = sorted((_FOLDER / "bodies").glob("*.json"))
    return [Sample(file.stem, **json.loads(file.read_text())) for file in files]


@cache
def urls() -> Urls:
    return Urls(**json.loads((_FOLDER / "urls.json").read_text()))


@cache
def values() -> Values:
    return Values(**json.loads((_FOLDER / "values.json").read_text()))
