"""Every field of the tools: both sides of its range, its default, its name in errors, what the model is told."""

from __future__ import annotations

import pytest
from support.client import Client, problems
from support.http_service import Service
from support.promises import promise
from support.worker import Worker
from tool_endpoints import (
    DEBLUR,
    ERASE,
    MINIMAL,
    OUTPAINTING,
    TOOLS,
    TRY_ONS,
)

MAX_SEED = 2**64 - 1


# What the model is told.


def instruction(service: Service, tool: str) -> str:
    return service.app.state.services.catalog.endpoints[tool].instruction


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


@promise("Decided: tools", "outpainting rejects unknown fields")
def test_all_unknown_fields_of_outpainting_are_named(client: Client, service: Service) -> None:
    with service.unchanged():
        response = client.order(OUTPAINTING, **MINIMAL[OUTPAINTING], a=1, b={"c": 2})
        assert problems(response) == [(["body", name], "extra_forbidden") for name in ("a", "b")]
