"""Every field of the tools: both sides of its range, its default, its name in errors, what the model is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.client import HOOK, Client, problems
from support.http_service import Service
from support.pictures import sent
from support.promises import promise
from support.worker import Worker
from tool_endpoints import (
    DEBLUR,
    ERASE,
    MINIMAL,
    OUTPAINTING,
    PHOTO,
    TOOLS,
    TRY_ON_1,
    TRY_ON_2,
    TRY_ONS,
    coloured,
    mask,
)

MAX_SEED = 2**64 - 1
OFFSETS = ("reference_offset_x", "reference_offset_y")

TAKEN: list[tuple[list[str], dict[str, Any]]] = [
    (TOOLS, {"seed": 0}),
    (TOOLS, {"seed": MAX_SEED}),
    (TOOLS, {"seed": 3.0}),
    (TOOLS, {"seed": -1}),
    (TOOLS, {"output_format": "jpg"}),
    (TOOLS, {"safety_tolerance": 0}),
    (TOOLS, {"safety_tolerance": 5}),
    (TOOLS, {"output_format": "jpeg"}),
    (TOOLS, {"output_format": "png"}),
    (TOOLS, {"output_format": "webp"}),
    (TOOLS, {"webhook_url": HOOK, "webhook_secret": "x" * 512, "user": "u" * 256}),
    (TOOLS, {"user": "u"}),
    ([ERASE], {"dilate_pixels": 0}),
    ([ERASE], {"dilate_pixels": 25}),
    ([OUTPAINTING], {"width": 2048, "height": 2048}),
    ([OUTPAINTING], {"width": 6256, "height": 670}),
    ([OUTPAINTING], {"width": 97, "height": 64}),
    ([OUTPAINTING], {"width": 64, "height": 65, "auto_crop": True}),
    ([OUTPAINTING], {"mode": "high"}),
    ([OUTPAINTING], {"mode": "fast"}),
    ([OUTPAINTING], {"auto_crop": True}),
    ([OUTPAINTING], {"reference_offset_x": 0, "reference_offset_y": 32}),
    ([OUTPAINTING], {"reference_offset_x": 32, "reference_offset_y": None}),
    (TRY_ONS, {"prompt": ""}),
    (TRY_ONS, {"prompt": "x" * 32_768}),
]

REFUSED: list[tuple[list[str], dict[str, Any], str, str]] = [
    (TOOLS, {"seed": MAX_SEED + 1}, "seed", "less_than_equal"),
    (TOOLS, {"seed": "7"}, "seed", "int_type"),
    (TOOLS, {"seed": 1.5}, "seed", "int_from_float"),
    (TOOLS, {"seed": True}, "seed", "int_type"),
    (TOOLS, {"safety_tolerance": -1}, "safety_tolerance", "greater_than_equal"),
    (TOOLS, {"safety_tolerance": 6}, "safety_tolerance", "safety_tolerance_not_approved"),
    (TOOLS, {"safety_tolerance": 7}, "safety_tolerance", "less_than_equal"),
    (TOOLS, {"output_format": "gif"}, "output_format", "literal_error"),
    (TOOLS, {"webhook_url": "ftp://hooks.test/"}, "webhook_url", "url_refused"),
    (TOOLS, {"webhook_secret": ""}, "webhook_secret", "too_short"),
    (TOOLS, {"user": ""}, "user", "string_too_short"),
    (TOOLS, {"user": "u" * 257}, "user", "string_too_long"),
    ([ERASE], {"dilate_pixels": -1}, "dilate_pixels", "greater_than_equal"),
    ([ERASE], {"dilate_pixels": 26}, "dilate_pixels", "less_than_equal"),
    ([ERASE], {"dilate_pixels": 2.5}, "dilate_pixels", "int_from_float"),
    ([ERASE], {"dilate_pixels": "10"}, "dilate_pixels", "int_type"),
    ([OUTPAINTING], {"width": 4096, "height": 4096}, "height", "area_too_large"),
    ([OUTPAINTING], {"mode": "best"}, "mode", "literal_error"),
    ([OUTPAINTING], {"auto_crop": "true"}, "auto_crop", "bool_type"),
    ([OUTPAINTING], {"auto_crop": 1}, "auto_crop", "bool_type"),
    *(([OUTPAINTING], {name: 0.5}, name, "int_from_float") for name in OFFSETS),
    *(([OUTPAINTING], {name: "0"}, name, "int_type") for name in OFFSETS),
    *(([OUTPAINTING], {name: 100_001}, name, "less_than_equal") for name in OFFSETS),
    *(([OUTPAINTING], {name: -100_001}, name, "greater_than_equal") for name in OFFSETS),
    *(([OUTPAINTING], {name: "x"}, name, "extra_forbidden") for name in ("prompt", "mask", "image", "guidance")),
    ([OUTPAINTING], {"steps": None}, "steps", "extra_forbidden"),
    (TRY_ONS, {"prompt": 3}, "prompt", "string_type"),
    (TRY_ONS, {"prompt": "x" * 32_769}, "prompt", "string_too_long"),
]


def shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)[:40]


@pytest.mark.parametrize(("tool", "body"), [(name, body) for names, body in TAKEN for name in names], ids=shown)
def test_taken(client: Client, tool: str, body: dict[str, Any]) -> None:
    client.ordered(tool, **MINIMAL[tool] | body)


@pytest.mark.parametrize(
    ("tool", "body", "field", "kind"),
    [(name, body, field, kind) for names, body, field, kind in REFUSED for name in names],
    ids=shown,
)
def test_refused(client: Client, service: Service, tool: str, body: dict[str, Any], field: str, kind: str) -> None:
    with service.unchanged():
        assert problems(client.order(tool, **MINIMAL[tool] | body)) == [(["body", field], kind)]


@pytest.mark.parametrize("tool", TOOLS)
def test_all_that_is_missing_is_named(client: Client, tool: str) -> None:
    assert problems(client.order(tool)) == [(["body", field], "missing") for field in MINIMAL[tool]]


# What the model is told.

NONE = dict.fromkeys(
    ("guidance", "guidance_interval", "canny", "control", "image_prompt", "adapter", "clip", "start_video")
)
COMMON = NONE | {
    "prompt": "",
    "width": 96,
    "height": 64,
    "area": 96 * 64,
    "transparent": False,
    "rewrite": False,
    "structured": False,
    "safety_tolerance": 2,
    "safety_ceilings": {},
    "output_format": "png",
}
DEFAULTS: dict[str, dict[str, Any]] = {
    # A network that repairs a picture in one pass.
    ERASE: {"steps": 1},
    OUTPAINTING: {"width": 128, "height": 96, "area": 128 * 96, "steps": 40},
    TRY_ON_1: {"steps": 4, "output_format": "jpeg", "mask": None},
    TRY_ON_2: {"steps": 4, "output_format": "jpeg", "mask": None},
    DEBLUR: {"steps": 4, "mask": None},
}
LANES = {
    ERASE: "eraser",
    OUTPAINTING: "flux1-fill",
    TRY_ON_1: "flux2-pro",
    TRY_ON_2: "flux2-pro",
    DEBLUR: "deblur",
}


def instruction(service: Service, tool: str) -> str:
    return service.app.state.services.catalog.endpoints[tool].instruction


@pytest.mark.parametrize("tool", TOOLS)
def test_defaults_and_nulls(client: Client, worker: Worker, service: Service, tool: str) -> None:
    request = service.app.state.services.catalog.endpoints[tool].request_type
    nulls = dict.fromkeys(request.model_fields)
    expected = COMMON | DEFAULTS[tool] | {"prompt": instruction(service, tool)}
    for body in (MINIMAL[tool], nulls | MINIMAL[tool]):
        job = worker.job(client.ordered(tool, **body))
        assert {name: job[name] for name in expected} == expected
        assert set(job) == set(expected) | {"v", "seed", "references", "mask"}
        assert 0 <= job["seed"] < 2**32


@pytest.mark.parametrize("tool", TOOLS)
def test_the_queue(client: Client, worker: Worker, tool: str) -> None:
    task = worker.run(worker.tasks.get(client.ordered(tool, **MINIMAL[tool])))
    assert task is not None
    assert task.lane == LANES[tool]


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_asked_for_reaches_the_model(client: Client, worker: Worker, tool: str) -> None:
    asked = {"seed": MAX_SEED, "safety_tolerance": 5, "output_format": "webp"}
    job = worker.job(client.ordered(tool, **MINIMAL[tool], **asked))
    assert {name: job[name] for name in asked} == asked


@promise("11. Tool endpoints", "`mode` parameter with values `fast` and `high` (default `high`)")
@pytest.mark.parametrize(("mode", "steps"), [("fast", 10), ("high", 40), (None, 40)])
def test_the_mode_decides_the_steps(client: Client, worker: Worker, mode: str | None, steps: int) -> None:
    task_id = client.ordered(OUTPAINTING, **MINIMAL[OUTPAINTING], mode=mode)
    task = worker.run(worker.tasks.get(task_id))
    assert task is not None
    assert (task.lane, worker.job(task_id)["steps"]) == ("flux1-fill", steps)


@pytest.mark.parametrize("tool", TRY_ONS)
def test_the_instruction_comes_before_the_words_of_the_user(
    client: Client, worker: Worker, service: Service, tool: str
) -> None:
    own = instruction(service, tool)
    assert own
    words = 'open, [{"id": 1}]'
    assert worker.job(client.ordered(tool, **MINIMAL[tool], prompt=words))["prompt"] == f"{own} {words}"
    assert worker.job(client.ordered(tool, **MINIMAL[tool], prompt=""))["prompt"] == own


def test_restoring_has_an_instruction_and_erasing_none(service: Service) -> None:
    assert instruction(service, DEBLUR)
    assert not instruction(service, ERASE)
    assert not instruction(service, OUTPAINTING)


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != OUTPAINTING])
def test_unknown_fields_are_ignored(client: Client, worker: Worker, tool: str) -> None:
    unknown = {"steps": 99, "guidance": "x", "width": 1, "height": 1, "input_image": "no picture", "mode": "fast"}
    job = worker.job(client.ordered(tool, **MINIMAL[tool], **unknown))
    assert (job["width"], job["height"], job["steps"]) == (96, 64, DEFAULTS[tool]["steps"])


@pytest.mark.parametrize("tool", [ERASE, DEBLUR])
def test_a_prompt_is_ignored_where_there_is_none(client: Client, worker: Worker, service: Service, tool: str) -> None:
    job = worker.job(client.ordered(tool, **MINIMAL[tool], prompt="a dragon"))
    assert job["prompt"] == instruction(service, tool)


@promise("Decided: tools", "outpainting rejects unknown fields")
def test_all_unknown_fields_of_outpainting_are_named(client: Client, service: Service) -> None:
    with service.unchanged():
        response = client.order(OUTPAINTING, **MINIMAL[OUTPAINTING], a=1, b={"c": 2})
        assert problems(response) == [(["body", name], "extra_forbidden") for name in ("a", "b")]


@pytest.mark.parametrize(
    ("tool", "body", "size"),
    [
        (ERASE, {"image": sent(coloured(301, 203)), "mask": sent(mask((9, 9, 30, 30), size=(301, 203)))}, (301, 203)),
        (OUTPAINTING, {"width": 333, "height": 77}, (333, 77)),
        (TRY_ON_1, {"person": sent(coloured(70, 90))}, (70, 90)),
        (TRY_ON_2, {"person": sent(coloured(70, 90))}, (70, 90)),
        (TRY_ON_2, {"garment": sent(coloured(70, 90))}, (96, 64)),
        (DEBLUR, {"image": sent(coloured(333, 77))}, (333, 77)),
        # Held to the smallest that can be made.
        (DEBLUR, {"image": sent(coloured(32, 48))}, (64, 96)),
        (ERASE, {"image": PHOTO}, (96, 64)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sizes(client: Client, worker: Worker, tool: str, body: dict[str, Any], size: tuple[int, int]) -> None:
    job = worker.job(client.ordered(tool, **MINIMAL[tool] | body))
    assert (job["width"], job["height"], job["area"]) == (*size, size[0] * size[1])
