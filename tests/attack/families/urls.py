"""Addresses that lead to where the service must not go, in every spelling we know, wherever it takes an address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from attack import corpus
from attack.attacks import Shot
from attack.mutations import JSON
from attack.origin import Origin
from attack.stage import Stage
from attack.wire import Request

Spelling: TypeAlias = Callable[[Origin], str]

_TAKES: Final[dict[str, Callable[[str], tuple[str, dict[str, Any]]]]] = {
    "images": lambda url: ("gen-3-image-klein", {"prompt": "x", "images": [url]}),
    "input_image": lambda url: ("gen-2-max", {"prompt": "x", "input_image": url}),
    "start_video": lambda url: ("gen-3-video", {"mode": "v2v", "prompt": "x", "start_video": url}),
    "webhook_url": lambda url: ("gen-3-image-klein", {"prompt": "x", "webhook_url": url}),
}
_WEBHOOK: Final = "webhook_url"
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_REFUSED: Final = (422,)
_ACCEPTED: Final = (200,)
_WITHIN_S: Final = 60.0
"""Names that nobody knows take their time."""


def attacks(repository: Path, seed: int, count: int) -> Sequence[Shot]:
    """Each spelling in every field that takes an address, or a choice of them."""
    several = list(_all())
    return several if len(several) <= count else Random(seed).sample(several, count)


def _all() -> Iterator[Shot]:
    for field in _TAKES:
        for url in corpus.urls().direct:
            yield _shot(field, repr(url), lambda origin, url=url: _here(url, origin), _REFUSED)
        # A webhook may go to a server that redirects: whoever sends it does not follow.
        expected = _ACCEPTED if field == _WEBHOOK else _REFUSED
        for url in corpus.urls().redirected_to:
            for status in _REDIRECTS:
                spelling = _redirecting(url, status)
                yield _shot(field, f"{status} to {url!r}", spelling, expected)
        twice = _redirecting("http://127.0.0.1:{port}/", 302)
        yield _shot(field, "302 twice", lambda origin, twice=twice: origin.redirect_to(twice(origin)), expected)


def _shot(field: str, name: str, spelling: Spelling, expected: Sequence[int]) -> Shot:
    def build(stage: Stage) -> Request:
        endpoint, body = _TAKES[field](spelling(stage.origin))
        return Request("POST", f"/v1/{endpoint}", json.dumps(body).encode(), JSON)

    return Shot(f"{field}: {name}", build, expected=expected, within_s=_WITHIN_S)


def _redirecting(url: str, status: int) -> Spelling:
    return lambda origin: origin.redirect_to(_here(url, origin), status)


def _here(url: str, origin: Origin) -> str:
    return url.replace("{port}", str(origin.port))
