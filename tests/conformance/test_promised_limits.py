"""The table of limits, and what keeps one project from taking everything."""

from __future__ import annotations

from typing import Final

import pytest
from sent_images import photo, plain
from server_under_test import KLEIN, RULES, VIDEO, Json, ServerUnderTest, detail, least
from support.promises import promise

_SECTION: Final = "Limits"
_MANY: Final = 40
"""Tasks that a project may hardly have at a time."""


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=promise(_SECTION, rule["says"]), id=rule["says"]) for rule in RULES["limits"]]
)
def test_what_is_beyond_a_limit_is_refused(server: ServerUnderTest, rule: Json) -> None:
    server.refuses(rule["endpoint"], next(iter(rule["refuses"])), **rule["refuses"])


@promise(_SECTION, "Video keyframes: 1 to 10: `i2v`")
@pytest.mark.parametrize("count", [0, 11])
def test_keyframes_are_counted(server: ServerUnderTest, count: int) -> None:
    body = {"mode": "i2v", "prompt": "waves", "keyframes": [photo()] * count}
    server.refuses(VIDEO, "keyframes", **body, without="draft")


@promise(_SECTION, "2 MP (vto-v1)")
@promise("11. Tool endpoints", "inputs up to 2 MP, larger inputs are downscaled to about 1 MP")
def test_large_inputs_are_scaled_for_the_first_try_on(server: ServerUnderTest) -> None:
    server.takes("gen-tools/vto-v1", person=plain(2100, 2100))


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
def test_several_images_are_taken(server: ServerUnderTest, endpoint: str, count: int) -> None:
    names = ["input_image", *(f"input_image_{number}" for number in range(2, count + 1))]
    several: Json = dict.fromkeys(names, photo())
    server.takes(endpoint, **several)
    server.refuses(endpoint, **{names[-1]: "no image"})


@promise(
    "Decided: errors",
    "too many active tasks for the project (default 24), too many requests, or the endpoint's queue is full: each "
    "says which, with `Retry-After`",
)
def test_too_many_tasks_are_refused(server: ServerUnderTest) -> None:
    body = least(KLEIN) | {"width": 1024, "height": 1024, "steps": 16}
    for _ in range(_MANY):
        response = server.submit(KLEIN, body, patiently=False)
        if response.status_code != 200:
            detail(response, 429)
            assert response.headers["retry-after"].isdigit()
            return
    pytest.skip(f"this project may have {_MANY} tasks at a time")
