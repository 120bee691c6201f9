"""The table of limits, and what keeps one project from taking everything."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from serve_app.conformance import pictures
from serve_app.conformance.answers import detail
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import (
    CANNY,
    DEBLUR,
    FILL,
    KLEIN,
    KONTEXT,
    MAX,
    OUTPAINTING,
    PREVIEW,
    PRO,
    TRY_ON,
    TRY_ON_2,
)
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("limits")

_SECTION: Final = "Limits"
_MANY: Final = 40
"""Tasks that a project may hardly have at a time."""
_PHOTO: Final = pictures.photo()

_BOUNDS: Final[tuple[tuple[str, str, dict[str, Any], str], ...]] = (
    ("Reference images: 1 to 10: image endpoint 1 (`images`)", KLEIN, {"images": [_PHOTO] * 11}, "images"),
    (
        "`width`, `height`: 64 to 6256 each; `width` x `height` at most 16822272: endpoint 1",
        KLEIN,
        {"width": 6257, "height": 64},
        "width",
    ),
    ("`width`, `height`: at least 64: endpoints 2, 3", PREVIEW, {"width": 63, "height": 64}, "width"),
    ("`width`, `height`: 256 to 1440, multiple of 32: endpoint 5", PRO, {"width": 1441}, "width"),
    ("`steps`: 1 to 16 (default 16): endpoint 1", KLEIN, {"steps": 17}, "steps"),
    ("`steps`: 1 to 50: endpoint 5", PRO, {"steps": 51}, "steps"),
    ("`steps`: 15 to 50: endpoints 6, 7, 8, 9", CANNY, {"steps": 14}, "steps"),
    (
        "`safety_tolerance`: 0 to 7 / 0 to 5 / 0 to 6: endpoint 1 / endpoints 2 and 3 / all others",
        MAX,
        {"safety_tolerance": 6},
        "safety_tolerance",
    ),
    ("`seed`: 0 to 4294967295: endpoint 1", KLEIN, {"seed": 4294967296}, "seed"),
    (
        "`webhook_url` length: 1 to 2083: all that accept webhooks",
        FILL,
        {"webhook_url": "https://example.com/" + "x" * 2083},
        "webhook_url",
    ),
    (
        "Canny thresholds: 0 to 500: endpoints 7, 8 (fill does not use them), 9",
        CANNY,
        {"canny_low_threshold": 501},
        "canny_low_threshold",
    ),
    (
        "`finetune_strength`: 0 to 2: tuned-model endpoints",
        f"{KLEIN}-finetuned",
        {"finetune_strength": 2.01},
        "finetune_strength",
    ),
    (
        "Tool input size: 4 MP (deblur, vto-v2); 2 MP (vto-v1); 4 MP output (outpainting): tool endpoints",
        OUTPAINTING,
        {"width": 2080, "height": 2080},
        "height",
    ),
)


async def _is_bounded(session: Session, endpoint: str, change: dict[str, Any], field: str) -> None:
    await session.refuses(endpoint, change, field)


for sentence, endpoint, change, field in _BOUNDS:
    topic.holds(_SECTION, sentence)(partial(_is_bounded, endpoint=endpoint, change=change, field=field))


@topic.holds(_SECTION, "Input images: up to 8 (`input_image` to `input_image_8`): endpoints 2 and 3", credits=30)
async def eight_pictures_are_taken(session: Session) -> None:
    names = ["input_image", *(f"input_image_{number}" for number in range(2, 9))]
    await session.takes(PREVIEW, dict.fromkeys(names, _PHOTO))
    await session.refuses(PREVIEW, {"input_image_8": "no picture"}, "input_image_8")


@topic.holds(_SECTION, "Input images: up to 4: endpoint 4", credits=4)
async def four_pictures_are_taken(session: Session) -> None:
    names = ["input_image", *(f"input_image_{number}" for number in range(2, 5))]
    await session.takes(KONTEXT, dict.fromkeys(names, _PHOTO))
    await session.refuses(KONTEXT, {"input_image_4": "no picture"}, "input_image_4")


@topic.holds(_SECTION, "4 MP (deblur, vto-v2)")
async def large_tool_inputs_are_refused(session: Session) -> None:
    large = pictures.plain(2100, 2100)
    await session.refuses(DEBLUR, {"image": large}, "image")
    await session.refuses(TRY_ON_2, {"person": large}, "person")


@topic.holds(_SECTION, "2 MP (vto-v1)", credits=6)
async def large_inputs_are_scaled_for_the_first_try_on(session: Session) -> None:
    await session.takes(TRY_ON, {"person": pictures.plain(2100, 2100)})


@topic.holds(
    "Decided: errors",
    "too many active tasks for the project (default 24), too many requests, or the endpoint's queue is full: each "
    "says which, with `Retry-After`",
    credits=_MANY,
)
async def too_many_tasks_are_refused(session: Session) -> None:
    body = minimal(KLEIN) | {"width": 1024, "height": 1024, "steps": 16}
    for _ in range(_MANY):
        response = await session.submit(KLEIN, body, patiently=False)
        if response.status_code == 429:
            detail(response, 429)
            expect(response.headers.get("retry-after", "").isdigit(), "Retry-After, whole seconds")
            return
        expect(response.status_code == 200, "200, or 429")
    raise Skipped(f"this project may have {_MANY} tasks at a time")
