"""The tools as endpoints: what they answer, whom they reach, their other names, how they are described."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.http_client import Client, problems
from support.http_service import Service, StartService
from support.images import image_file
from support.promises import promise
from support.worker import Worker
from tool_endpoints import DEBLUR, ERASE, MINIMAL, OUTPAINTING, TOOLS, TRY_ONS

from serve_app.api.openapi import camel_case
from serve_app.config.settings import ServiceSettings


@pytest.mark.parametrize("tool", TOOLS)
def test_what_a_tool_costs_is_held_and_counted_under_its_name(
    service: Service, administrator: Client, tool: str
) -> None:
    reply = administrator.order(tool, **MINIMAL[tool]).json()
    assert administrator.get("/v1/credits").json() == {"credits": 100 - reply["cost"]}
    service.worker.deliver(reply["id"], image_file(form="JPEG"))
    (used,) = administrator.get("/v1/usage").json()["usage"]
    assert (used["endpoint"], used["tasks"], used["cost"]) == (tool, 1, reply["cost"])


@promise(
    "Decided: submission",
    "configurable list of family tokens that route to the same handlers (default none: `gen` only)",
)
def test_aliases_lead_to_the_same_tools(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(path_aliases=["flux"]))
    with service.client() as client:
        for tool in TOOLS:
            alias = tool.replace("gen", "flux")
            reply = client.order(alias, **MINIMAL[tool])
            assert reply.status_code == 200, alias
            priced = client.post("/v1/pricing", json={"path": f"/v1/{alias}", "body": MINIMAL[tool]})
            assert priced.json()["cost"] == reply.json()["cost"]
            client.order_task(tool, **MINIMAL[tool])
        assert client.order("flux-tools/nonsense").status_code == 404
        assert client.get("/v1/flux-tools/erase-v1").status_code == 405
        listed = client.get("/v1/tasks", params={"limit": 100}).json()["tasks"]
        assert sorted(task["endpoint"] for task in listed) == sorted(TOOLS * 2)


@pytest.mark.parametrize("tool", sorted(set(TOOLS) - {OUTPAINTING}))
def test_a_tool_says_that_it_rewrites_no_prompt(client: Client, tool: str) -> None:
    for sent, count in ((True, 1), (False, 0)):
        answer = client.order(tool, **MINIMAL[tool], prompt_upsampling=sent).json()
        assert ["prompt_upsampling" in each for each in answer.get("warnings", [])] == [True] * count


@pytest.fixture
def openapi(client: Client) -> dict[str, Any]:
    return client.get("/openapi.json").json()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_is_described(openapi: dict[str, Any], tool: str) -> None:
    operation = openapi["paths"][f"/v1/{tool}"]["post"]
    assert operation["operationId"] == camel_case(tool)
    assert operation["summary"]
    assert set(operation["responses"]) == {"200", "401", "402", "403", "409", "413", "422", "429", "503"}
    assert set(openapi["paths"][f"/v1/{tool}"]) == {"post"}
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    form = openapi["components"]["schemas"][schema["$ref"].removeprefix("#/components/schemas/")]
    assert set(form["required"]) == set(MINIMAL[tool])
    assert {"webhook_url", "webhook_secret", "user", "seed", "safety_tolerance", "output_format"} <= set(
        form["properties"]
    )
    tolerance = form["properties"]["safety_tolerance"]["anyOf"][0]
    assert (tolerance["minimum"], tolerance["maximum"]) == (0, 6)
    assert (form.get("additionalProperties") is False) == (tool == OUTPAINTING)


def test_operations_have_names_that_stay_apart_in_any_language(openapi: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for path, methods in openapi["paths"].items()
        for operation in methods.values()
        if path.startswith("/v1/")
    ]
    assert len(names) == len({re.sub(r"[^a-z0-9]", "", name.lower()) for name in names})


def test_the_examples_of_a_tool_are_complete(openapi: dict[str, Any]) -> None:
    forms = openapi["components"]["schemas"]
    for name in ("EraseRequest", "OutpaintingRequest", "TryOnV1Request", "TryOnV2Request", "DeblurRequest"):
        for field, schema in forms[name]["properties"].items():
            assert schema["description"], (name, field)
            assert schema["examples"], (name, field)


MAX_SEED = 2**64 - 1


def instruction(service: Service, tool: str) -> str:
    return service.app.state.services.catalog.endpoints[tool].instruction


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_asked_for_reaches_the_model(client: Client, worker: Worker, tool: str) -> None:
    options = {"seed": MAX_SEED, "output_format": "webp"}
    job = worker.job(client.order_task(tool, **MINIMAL[tool], safety_tolerance=5, **options))
    assert {name: job[name] for name in options} == options
    assert job["safety"].level == 5


@promise("11. Tool endpoints", "`mode` parameter with values `fast` and `high` (default `high`)")
@pytest.mark.parametrize(("mode", "steps"), [("fast", 10), ("high", 40), (None, 40)])
def test_the_mode_decides_the_steps(client: Client, worker: Worker, mode: str | None, steps: int) -> None:
    task_id = client.order_task(OUTPAINTING, **MINIMAL[OUTPAINTING], mode=mode)
    task = worker.run(worker.tasks.reads.get(task_id))
    assert task is not None
    assert (task.queue, worker.job(task_id)["steps"]) == ("flux1-fill", steps)


@pytest.mark.parametrize("tool", TRY_ONS)
def test_the_instruction_comes_before_the_words_of_the_user(
    client: Client, worker: Worker, service: Service, tool: str
) -> None:
    assert instruction(service, DEBLUR)
    assert not instruction(service, ERASE)
    assert not instruction(service, OUTPAINTING)
    own = instruction(service, tool)
    assert own
    words = 'open, [{"id": 1}]'
    assert worker.job(client.order_task(tool, **MINIMAL[tool], prompt=words))["prompt"] == f"{own} {words}"
    assert worker.job(client.order_task(tool, **MINIMAL[tool], prompt=""))["prompt"] == own


@promise("Decided: tools", "outpainting rejects unknown fields")
def test_all_unknown_fields_of_outpainting_are_named(client: Client, service: Service) -> None:
    with service.assert_unchanged():
        response = client.order(OUTPAINTING, **MINIMAL[OUTPAINTING], a=1, b={"c": 2})
        assert problems(response) == [(["body", name], "extra_forbidden") for name in ("a", "b")]
