"""Families of attacks: the same seed and count make the same ones."""

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
from attack.stage import OPERATOR, Stage
from attack.wire import NoAnswer, Request, exchange, wrong

REPOSITORY: Final = Path(__file__).parents[2]
CORPUS: Final[Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "corpus.yaml").read_text())
_PHOTO: Final = to_base64(image_file())
_ENDED_S: Final = 75.0
"""Within which a proxy must have ended them."""
_HOLD_S: Final = 3.0
"""How long they last where there is no proxy to end them."""
_READ: Final = (200, 413, 422)
"""What a file may be answered with."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile request."""

    name: str
    request: Request
    role: str = "developer"
    expected: Collection[int] = ()
    """What it may be answered with; empty for anything but failure."""
    within_s: float = 30.0
    broken: bool = False
    """It is no proper HTTP, so it may also go unanswered."""

    def run(self, stage: Stage) -> list[str]:
        """What went wrong."""
        key = stage.keys[self.role]
        try:
            answer = exchange(stage.address, self.request, key, self.within_s)
        except NoAnswer as silence:
            return [] if self.broken and "within" not in str(silence) else [str(silence)]
        problems = wrong(self.request, answer, (stage.keys[OPERATOR], stage.bystander), plain_400=self.broken)
        if self.expected and answer.status not in self.expected and not problems:
            problems = [f"HTTP {answer.status}: {answer.text[:200]}"]
        if answer.status == 200 and '"polling_url"' in answer.text:  # what it would make is not what is tried
            exchange(stage.address, Request("DELETE", f"/v1/tasks/{json.loads(answer.body)['id']}"), key, 30)
        hits, stage.origin.hits[:] = list(stage.origin.hits), []
        return problems + [f"reached where it must not: {hit}" for hit in hits]


def mutate(stage: Stage, seed: int, count: int) -> Iterator[Attack]:
    """Bodies of honest requests, changed: whatever is sent as JSON is answered shortly, and never fails."""
    for number in range(count):
        random = Random(f"{seed} {number}")
        method, path, role, body = random.choice(CORPUS["samples"])
        names = {"organization": stage.organization, "project": stage.project, "photo": _PHOTO}
        source = json.loads(_fill(json.dumps(body), names))
        kind = list(hostile.KINDS)[number % len(hostile.KINDS)]
        mutant = hostile.KINDS[kind](random, source, CORPUS)
        request = replace(mutant, method=method, target=_fill(path, names))
        yield Attack(f"{path}: {kind} {number}", request, role, broken=kind in hostile.NO_HTTP)


def _fill(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


def urls(stage: Stage, seed: int, count: int) -> Iterator[Attack]:
    """Addresses that lead to where the service must not go, wherever it takes one."""
    origin, several = stage.origin, list[Attack]()
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
            # A webhook may go to a server that redirects: whoever sends it does not follow.
            expected = (200,) if field == "webhook_url" and url in moved else (422,)
            several.append(Attack(f"{field}: {url!r}", request, expected=expected, within_s=60))
    yield from several if len(several) <= count else Random(seed).sample(several, count)


def images(stage: Stage, seed: int, count: int) -> Iterator[Attack]:
    """Hostile image files wherever an image is taken: read or refused, in bounded time."""
    samples = [sample for sample in CORPUS["samples"] if "{photo}" in str(sample[3]) and sample[1] != "/v1/pricing"]
    for number in range(count):
        random = Random(f"{seed} {number}")
        kind = list(hostile.IMAGES)[number % len(hostile.IMAGES)]
        _, path, _, body = random.choice(samples)
        file = to_base64(hostile.IMAGES[kind](random, CORPUS))
        text = json.dumps(body).replace("{photo}", file, 1)
        yield _price(f"{path}: {kind} {number}", path, json.loads(_fill(text, {"photo": _PHOTO})), random, 15)


def videos(stage: Stage, seed: int, count: int) -> Iterator[Attack]:
    """Hostile video files: read or refused, in bounded time, and nothing that a file names is opened."""
    for number in range(count):
        random = Random(f"{seed} {number}")
        kind = list(hostile.VIDEOS)[number % len(hostile.VIDEOS)]
        file = to_base64(hostile.VIDEOS[kind](random, CORPUS, stage.origin.port))
        yield _price(
            f"{kind} {number}", "/v1/gen-3-video", {"mode": "v2v", "prompt": "x", "start_video": file}, random, 75
        )


def _price(name: str, path: str, body: dict[str, Any], random: Random, within_s: float) -> Attack:
    """Submitted, or only priced: what is only priced is read like what is submitted."""
    if random.random() < 0.5:
        path, body = "/v1/pricing", {"path": path, "body": body}
    return Attack(name, Request("POST", path, json.dumps(body).encode()), expected=_READ, within_s=within_s)


@dataclass(frozen=True, slots=True)
class SlowConnections:
    """Several of one manner at a time: what each sends at once, and then byte by byte, second by second."""

    name: str
    number: int
    first: bytes
    later: bytes

    def run(self, stage: Stage) -> list[str]:
        """What went wrong."""
        over = time.monotonic() + (_ENDED_S if stage.proxied else _HOLD_S)
        with ThreadPoolExecutor(self.number) as pool:
            open_count = sum(pool.map(lambda _: self._is_open_at(over, stage), range(self.number)))
        message = f"{open_count} of {self.number} connections still open after {_ENDED_S:g} s"
        return [message] if stage.proxied and open_count else []

    def _is_open_at(self, over: float, stage: Stage) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(stage.address, 30) as connection:
            connection.sendall(self.first)
            connection.settimeout(1)
            for at in range(1000):
                if time.monotonic() > over:
                    return True
                connection.sendall(self.later[at : at + 1])
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(65_536):
                        break
        return False


def slow(stage: Stage, seed: int, count: int) -> Iterator[SlowConnections]:
    """Heads and bodies byte by byte, and silence, at once or after an answer."""
    head = Request("GET", "/openapi.json").head("", stage.address)
    body = Request("POST", "/v1/gen-3-image-klein", b"x" * 50_000).head(stage.keys["developer"], stage.address)
    keep_alive_head = head.replace(b"Connection: close", b"Connection: keep-alive")
    manners = (("a head byte by byte", b"", head[:-2]), ("a body byte by byte", body, b" " * 100))
    for name, first, later in (*manners, ("not a word", b"", b""), ("idle after an answer", keep_alive_head, b"")):
        yield SlowConnections(name, max(1, count // 4), first, later)
