"""The table of limits, and the limit of active tasks."""

from __future__ import annotations

from typing import Final

import pytest
from sent_images import photo, plain
from server_under_test import KLEIN, RULES, VIDEO, Json, ServerUnderTest, error_detail, minimal_body
from support.promises import promise

_SECTION: Final = "Limits"
_MANY: Final = 40
"""More active tasks than most projects may have."""


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=promise(_SECTION, rule["says"]), id=rule["says"]) for rule in RULES["limits"]]
)
def test_value_beyond_a_limit_is_rejected(server: ServerUnderTest, rule: Json) -> None:
    server.expect_rejected(rule["endpoint"], next(iter(rule["rejects"])), **rule["rejects"])


@promise(_SECTION, "Video keyframes: 1 to 10: `i2v`")
@pytest.mark.parametrize("count", [0, 11])
def test_number_of_keyframes_is_limited(server: ServerUnderTest, count: int) -> None:
    body = {"mode": "i2v", "prompt": "waves", "keyframes": [photo()] * count}
    server.expect_rejected(VIDEO, "keyframes", **body, without="draft")


@promise(_SECTION, "2 MP (vto-v1)")
@promise("11. Tool endpoints", "inputs up to 2 MP, larger inputs are downscaled to about 1 MP")
def test_first_try_on_accepts_large_images(server: ServerUnderTest) -> None:
    server.expect_accepted("gen-tools/vto-v1", person=plain(2100, 2100))


@pytest.mark.parametrize(
    ("endpoint", "count"),
    [
        pytest.param(
            "gen-2-pro-preview",
            8,
            marks=promise(_SECTION, "Input images: up to 8 (`input_image` to `input_image_8`): endpoints 2 and 3"),
        ),
        pytest.param("gen-kontext-pro", 4, marks=promise(_SECTION, "Input images: up to 4: endpoint 4")),
    ],
)
def test_all_image_fields_are_read(server: ServerUnderTest, endpoint: str, count: int) -> None:
    names = ["input_image", *(f"input_image_{number}" for number in range(2, count + 1))]
    several: Json = dict.fromkeys(names, photo())
    server.expect_accepted(endpoint, **several)
    server.expect_rejected(endpoint, **{names[-1]: "no image"})


@promise(
    "Decided: errors",
    "too many active tasks for the project (default 24), too many requests, or the endpoint's queue is full: each "
    "says which, with `Retry-After`",
)
def test_too_many_active_tasks_are_rejected(server: ServerUnderTest) -> None:
    body = minimal_body(KLEIN) | {"width": 1024, "height": 1024, "steps": 16}
    for _ in range(_MANY):
        response = server.submit(KLEIN, body, retry=False)
        if response.status_code != 200:
            error_detail(response, 429)
            assert response.headers["retry-after"].isdigit()
            return
    pytest.skip(f"this project may have {_MANY} tasks at a time")
