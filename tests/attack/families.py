"""Families of attacks. The same seed and count make the same attacks."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml
from support.images import image_file, to_base64

from attack import hostile
from attack.target import OPERATOR, Target
from attack.wire import NoResponse, Request, exchange, find_problems

REPOSITORY: Final = Path(__file__).parents[2]
CORPUS: Final[Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "corpus.yaml").read_text())
_PHOTO: Final = to_base64(image_file())
_PROXY_LIMIT_S: Final = 75.0
"""Seconds within which a proxy must close slow connections."""
_HOLD_S: Final = 3.0
"""Seconds for which slow connections last without a proxy."""
_FILE_STATUSES: Final = (200, 413, 422)
"""Statuses that a file may be answered with."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile request."""

    name: str
    request: Request
    role: str = "developer"
    expected: Collection[int] = ()
    """Allowed statuses; empty for any but a failure."""
    within_s: float = 30.0
    broken: bool = False
    """True if it is not valid HTTP, so that it may also go unanswered."""

    def run(self, target: Target) -> list[str]:
        """Returns what went wrong."""
        key = target.keys[self.role]
        try:
            answer = exchange(target.address, self.request, key, self.within_s)
        except NoResponse as silence:
            return [] if self.broken and "within" not in str(silence) else [str(silence)]
        problems = find_problems(self.request, answer, (target.keys[OPERATOR], target.bystander), plain_400=self.broken)
        if self.expected and answer.status not in self.expected and not problems:
            problems = [f"HTTP {answer.status}: {answer.text[:200]}"]
        if answer.status == 200 and '"polling_url"' in answer.text:  # no need to run the task
            exchange(target.address, Request("DELETE", f"/v1/tasks/{json.loads(answer.body)['id']}"), key, 30)
        hits, target.origin.hits[:] = list(target.origin.hits), []
        return problems + [f"reached a forbidden address: {hit}" for hit in hits]


def mutate(target: Target, seed: int, count: int) -> Iterator[Attack]:
    """Yields mutated bodies of valid requests, which must be answered quickly and without a failure."""
    for number in range(count):
        random = Random(f"{seed} {number}")
        method, path, role, body = random.choice(CORPUS["samples"])
        names = {"organization": target.organization, "project": target.project, "photo": _PHOTO}
        source = json.loads(_fill(json.dumps(body), names))
        kind = list(hostile.KINDS)[number % len(hostile.KINDS)]
        mutant = hostile.KINDS[kind](random, source, CORPUS)
        request = replace(mutant, method=method, target=_fill(path, names))
        yield Attack(f"{path}: {kind} {number}", request, role, broken=kind in hostile.NO_HTTP)


def _fill(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


def urls(target: Target, seed: int, count: int) -> Iterator[Attack]:
    """Yields URLs of forbidden addresses in every field that takes a URL."""
    origin, several = target.origin, list[Attack]()
    for field, endpoint, body in (
        ("images", "gen-3-image-klein", {"prompt": "x"}),
        ("input_image", "gen-2-max", {"prompt": "x"}),
        ("start_video", "gen-3-video", {"mode": "v2v", "prompt": "x"}),
        ("webhook_url", "gen-3-image-klein", {"prompt": "x", "width": 64, "height": 64}),
    ):
        here = [each.replace("{port}", str(origin.port)) for each in CORPUS["urls"]]
        there = [each.replace("{port}", str(origin.port)) for each in CORPUS["redirects"]]
        moved = [origin.redirect_to(url, status) for url in there for status in (301, 302, 303, 307, 308)]
        moved.append(origin.redirect_to(origin.redirect_to(f"http://127.0.0.1:{origin.port}/")))
        for url in (*here, *moved):
            value = [url] if field == "images" else url
            request = Request("POST", f"/v1/{endpoint}", json.dumps(body | {field: value}).encode())
            # A webhook's URL may redirect: the sender does not follow.
            expected = (200,) if field == "webhook_url" and url in moved else (422,)
            several.append(Attack(f"{field}: {url!r}", request, expected=expected, within_s=60))
    yield from several if len(several) <= count else Random(seed).sample(several, count)


def images(target: Target, seed: int, count: int) -> Iterator[Attack]:
    """Yields hostile image files in every field that takes an image. They must be handled in bounded time."""
    samples = [sample for sample in CORPUS["samples"] if "{photo}" in str(sample[3]) and sample[1] != "/v1/pricing"]
    for number in range(count):
        random = Random(f"{seed} {number}")
        kind = list(hostile.IMAGES)[number % len(hostile.IMAGES)]
        _, path, _, body = random.choice(samples)
        file = to_base64(hostile.IMAGES[kind](random, CORPUS))
        text = json.dumps(body).replace("{photo}", file, 1)
        yield _submit_or_price(f"{path}: {kind} {number}", path, json.loads(_fill(text, {"photo": _PHOTO})), random, 15)


def videos(target: Target, seed: int, count: int) -> Iterator[Attack]:
    """Yields hostile videos. They must be handled in bounded time, and no file or URL in them may be opened."""
    for number in range(count):
        random = Random(f"{seed} {number}")
        kind = list(hostile.VIDEOS)[number % len(hostile.VIDEOS)]
        file = to_base64(hostile.VIDEOS[kind](random, CORPUS, target.origin.port))
        yield _submit_or_price(
            f"{kind} {number}", "/v1/gen-3-video", {"mode": "v2v", "prompt": "x", "start_video": file}, random, 75
        )


def _submit_or_price(name: str, path: str, body: dict[str, Any], random: Random, within_s: float) -> Attack:
    """Submits or only prices a body at random; both read the files."""
    if random.random() < 0.5:
        path, body = "/v1/pricing", {"path": path, "body": body}
    return Attack(name, Request("POST", path, json.dumps(body).encode()), expected=_FILE_STATUSES, within_s=within_s)


@dataclass(frozen=True, slots=True)
class SlowConnections:
    """Several connections that send `first` at once, then `later` at one byte a second."""

    name: str
    number: int
    first: bytes
    later: bytes

    def run(self, target: Target) -> list[str]:
        """Returns what went wrong."""
        deadline = time.monotonic() + (_PROXY_LIMIT_S if target.proxied else _HOLD_S)
        with ThreadPoolExecutor(self.number) as pool:
            open_count = sum(pool.map(lambda _: self._is_open_at(deadline, target), range(self.number)))
        message = f"{open_count} of {self.number} connections still open after {_PROXY_LIMIT_S:g} s"
        return [message] if target.proxied and open_count else []

    def _is_open_at(self, deadline: float, target: Target) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(target.address, 30) as connection:
            connection.sendall(self.first)
            connection.settimeout(1)
            for at in range(1000):
                if time.monotonic() > deadline:
                    return True
                connection.sendall(self.later[at : at + 1])
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(65_536):
                        break
        return False


def slow(target: Target, seed: int, count: int) -> Iterator[SlowConnections]:
    """Yields connections that send heads and bodies byte by byte, or nothing."""
    head = Request("GET", "/openapi.json").head("", target.address)
    body = Request("POST", "/v1/gen-3-image-klein", b"x" * 50_000).head(target.keys["developer"], target.address)
    keep_alive_head = head.replace(b"Connection: close", b"Connection: keep-alive")
    manners = (("a head byte by byte", b"", head[:-2]), ("a body byte by byte", body, b" " * 100))
    for name, first, later in (*manners, ("not a word", b"", b""), ("idle after an answer", keep_alive_head, b"")):
        yield SlowConnections(name, max(1, count // 4), first, later)
