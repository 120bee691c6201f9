"""What a result tells, and the file that it leads to."""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlsplit

from serve_app.conformance import pictures
from serve_app.conformance.answers import Json, json_of
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN, PRO
from serve_app.conformance.session import Session, same_origin
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("results")

_DECIDED: Final = "Decided: polling"


async def _ready(session: Session) -> Json:
    """A small picture that is ready."""
    return await session.finished(KLEIN)


@topic.holds(
    _DECIDED,
    'Then `{"sample": url, "prompt": str, "seed": int, "start_time": float, "end_time": float, "duration": float}`',
    credits=1,
)
async def the_result_has_its_parts(session: Session) -> None:
    result = (await _ready(session))["result"]
    texts, times = ("sample", "prompt"), ("start_time", "end_time", "duration")
    expect(all(isinstance(result.get(name), str) for name in texts), "sample and prompt, strings")
    expect(type(result.get("seed")) is int, "seed, an integer")
    expect(all(isinstance(result.get(name), int | float) for name in times), "start_time, end_time, duration, numbers")


@topic.holds(_DECIDED, "epoch seconds; `duration` is processing seconds", credits=1)
async def times_are_epoch_seconds(session: Session) -> None:
    result = (await _ready(session))["result"]
    start, end, now = result["start_time"], result["end_time"], time.time()
    expect(start <= end <= now + 3600 and end > now - 7 * 86400, "start_time and end_time in epoch seconds")
    expect(0 <= result["duration"] <= end - start + 1, "duration, seconds of processing")


@topic.holds(_DECIDED, "`prompt` is the one really used (after upsampling).", credits=1)
async def the_prompt_is_told(session: Session) -> None:
    prompt = (await _ready(session))["result"]["prompt"]
    expect(prompt.startswith("a red circle"), "the prompt, or what it was made of")


@topic.holds(_DECIDED, "A key with no value is left out, never null.", credits=1)
async def results_have_no_nulls(session: Session) -> None:
    result = (await _ready(session))["result"]
    expect(all(value is not None for value in result.values()), "no null in result")


@topic.holds("Common field types", "reproducibility", credits=2)
async def seeds_make_the_same_picture(session: Session) -> None:
    files = []
    for number in (1, 2):
        # The second request differs by what does not show, so that no task is shared.
        task = await session.finished(KLEIN, {"seed": 7, "output_format": "png", "user": f"conformance-{number}"})
        expect(task["result"]["seed"] == 7, "seed 7 in the result")
        files.append(pictures.opened(await session.picture(task)).convert("RGB").tobytes())
    expect(files[0] == files[1], "the same pixels for the same seed and request")


@topic.holds("1. gen-3-image-klein", "`output_format`: string: `jpeg`", credits=1)
async def pictures_are_jpeg_by_default(session: Session) -> None:
    found = pictures.opened(await session.picture(await _ready(session)))
    expect(found.format == "JPEG", f"a JPEG, not {found.format}")


@topic.holds("1. gen-3-image-klein", "Exact width in pixels", credits=1)
async def pictures_have_the_size_asked_for(session: Session) -> None:
    size = pictures.size_of(await session.picture(await _ready(session)))
    expect(size == (64, 64), f"64 x 64 pixels, not {size[0]} x {size[1]}")


@topic.holds("1. gen-3-image-klein", "First item is the image being edited and sets the default output size", credits=1)
async def references_set_the_size(session: Session) -> None:
    body = {"images": [pictures.photo(128, 80)], "width": None, "height": None}
    size = pictures.size_of(await session.picture(await session.finished(KLEIN, body)))
    expect(abs(size[0] / size[1] - 1.6) < 0.1, f"the ratio of the first item, 1.6, not {size[0]} x {size[1]}")


@topic.holds("5. gen-pro", "`width`: integer: 1024", credits=5)
async def pro_has_a_size_by_default(session: Session) -> None:
    reply = await session.submit(PRO, {"prompt": "a red circle", "steps": 1})
    task = await session.end_of(json_of(reply)["id"])
    expect(task["status"] == "Ready", "Ready")
    size = pictures.size_of(await session.picture(task))
    expect(size == (1024, 768), f"1024 x 768 pixels, not {size[0]} x {size[1]}")


@topic.holds(_DECIDED, "absolute URL, same origin as `polling_url` for the local store", credits=1)
async def samples_are_absolute(session: Session) -> None:
    link = (await _ready(session))["result"]["sample"]
    expect(bool(urlsplit(link).scheme and urlsplit(link).netloc), "an absolute URL")
    if not same_origin(link, session.target.base_url):
        raise Skipped("results are at an object store")


@topic.holds(_DECIDED, "signed query, no header needed, CORS open, right `Content-Type`, range requests", credits=1)
async def links_open_files(session: Session) -> None:
    link = (await _ready(session))["result"]["sample"]
    response = await session.get(link, key="", headers={"Origin": "https://example.com"})
    expect(response.status_code == 200, "200 without any key")
    expect(response.headers.get("content-type") == "image/jpeg", "Content-Type: image/jpeg")
    part = await session.get(link, key="", headers={"Range": "bytes=0-3"})
    expect((part.status_code, part.content) == (206, response.content[:4]), "206 and the first four bytes")
    if same_origin(link, session.target.base_url):
        expect(response.headers.get("access-control-allow-origin") == "*", "Access-Control-Allow-Origin: *")
        bare = await session.get(link.partition("?")[0], key="")
        expect(bare.status_code in (401, 403), "403 without the signature")
