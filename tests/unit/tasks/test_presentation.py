"""What is shown of a result: links of the right life, and nothing that is the service's own."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from deployments.contract.objects import ObjectStore
from serve_app.inputs.links import PREFIX, LinkSigner
from serve_app.tasks.task import Status, Task
from serve_app.tasks.views import Presenter, encoded

BASE = "https://media.test"
LINKS = LinkSigner(bytes(32))
FIGURES: dict[str, Any] = {"prompt": "waves", "seed": 7, "start_time": 1.0, "end_time": 3.0, "duration": 2.0}
DRAFT = {"key": "results/t/1/draft.safetensors", "frames": 120, "width": 640, "height": 352, "sound": True}


async def _body(status: Status = Status.READY, **fields: Any) -> dict[str, Any]:
    presenter = Presenter(ObjectStore("memory:///"), LINKS, image_life_s=100, video_life_s=10_000)
    return await presenter.body(Task("t", "p", "ltx2", "gen-3-video", status, 1, 0, 0.0, **fields), BASE)


def _life_s(link: str) -> float:
    """Of a link that opens what it names."""
    url = urlsplit(link)
    assert f"{url.scheme}://{url.netloc}" == BASE
    query = parse_qs(url.query)
    now = time.time()
    assert LINKS.verify(url.path.removeprefix(PREFIX), query["se"][0], query["sig"][0], now)
    return int(query["se"][0]) - now


@pytest.mark.parametrize(
    ("name", "life_s"), [("picture.jpeg", 100), ("picture.png", 100), ("picture.webp", 100), ("clip.mp4", 10_000)]
)
async def test_links_live_as_long_as_their_kind(name: str, life_s: int) -> None:
    body = await _body(result={"key": f"results/t/1/{name}", **FIGURES})
    assert urlsplit(body["result"]["sample"]).path == f"{PREFIX}results/t/1/{name}"
    assert life_s - 1 <= _life_s(body["result"]["sample"]) <= 1.5 * life_s + 2


async def test_a_draft_has_a_second_link_and_shows_no_more() -> None:
    body = await _body(result={"key": "results/t/1/clip.mp4", "draft": DRAFT, **FIGURES})
    assert set(body["result"]) == {"sample", "draft_cache", *FIGURES}
    assert urlsplit(body["result"]["draft_cache"]).path == f"{PREFIX}{DRAFT['key']}"
    assert _life_s(body["result"]["draft_cache"]) >= 9_999
    assert b"frames" not in encoded(body)


async def test_what_is_no_draft_has_no_such_key() -> None:
    body = await _body(result={"key": "results/t/1/clip.mp4", "of the next release": 1, **FIGURES})
    assert set(body["result"]) == {"sample", *FIGURES}, "nothing that clients were not promised"
    assert {name: body["result"][name] for name in FIGURES} == FIGURES


async def test_a_preview_has_the_life_of_a_picture() -> None:
    preview = {"key": "results/t/1/preview-2.jpeg", "step": 2, "steps": 8}
    body = await _body(Status.GENERATING, preview=preview)
    assert (body["preview"]["step"], body["preview"]["steps"], body["result"]) == (2, 8, None)
    assert _life_s(body["preview"]["sample"]) <= 152
