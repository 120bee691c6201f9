"""The tools as endpoints: what they answer, whom they reach, their other names, how they are described."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from support.client import Client, problems, refusal
from support.http_service import Service, StartService
from support.pictures import picture
from support.promises import promise
from support.worker import Worker
from tool_endpoints import ERASE, MINIMAL, OUTPAINTING, PHOTO, TOOLS

from serve_app.config.settings import ServiceSettings
from serve_app.http.description import camel_case

# Answers.


@pytest.mark.parametrize("tool", TOOLS)
def test_the_way_of_a_task(client: Client, worker: Worker, tool: str) -> None:
    reply = client.order(tool, **MINIMAL[tool], seed=2**64 - 1).json()
    assert client.poll(reply["id"]).json()["status"] == "Pending"
    data = picture(form="JPEG")
    worker.deliver(reply["id"], data)
    polled = client.poll(reply["id"]).json()
    assert (polled["status"], polled["cost"]) == ("Ready", reply["cost"])
    assert polled["result"]["seed"] == 2**64 - 1
    assert client.get(polled["result"]["sample"]).content == data
    (listed,) = client.get("/v1/tasks").json()["tasks"]
    assert listed["endpoint"] == tool


@pytest.mark.parametrize("tool", TOOLS)
def test_what_a_tool_costs_is_held_and_counted_under_its_name(
    service: Service, administrator: Client, tool: str
) -> None:
    reply = administrator.order(tool, **MINIMAL[tool]).json()
    assert administrator.get("/v1/credits").json() == {"credits": 100 - reply["cost"]}
    service.worker.deliver(reply["id"], picture(form="JPEG"))
    (used,) = administrator.get("/v1/usage").json()["usage"]
    assert (used["endpoint"], used["tasks"], used["cost"]) == (tool, 1, reply["cost"])


@promise("Decided: errors", '`"Insufficient credits"`; a spending limit reached: 402 naming window and limit')
@pytest.mark.parametrize("tool", TOOLS)
def test_without_credits(service: Service, tool: str) -> None:
    with service.client(organization=service.worker.new_organization(credits=1)) as client, service.unchanged():
        assert refusal(client.order(tool, **MINIMAL[tool]), 402) == "Insufficient credits"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_webhook_that_leads_inside(client: Client, service: Service, tool: str) -> None:
    with service.unchanged():
        response = client.order(tool, **MINIMAL[tool], webhook_url="http://127.0.0.1/")
        assert [loc for loc, _ in problems(response)] == [["body", "webhook_url"]]


# Idempotency.


@pytest.fixture
def key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


@promise("Decided: submission", "Same key and same body within 24 h: the first response again, one task.")
@pytest.mark.parametrize("tool", TOOLS)
def test_a_repeat_gets_the_first_answer_again(client: Client, service: Service, key: dict[str, str], tool: str) -> None:
    path, body = f"/v1/{tool}", MINIMAL[tool]
    first = client.post(path, json=body, headers=key)
    assert first.status_code == 200
    with service.unchanged():
        again = client.post(path, json=dict(reversed(body.items())), headers=key)
        assert (again.status_code, again.json()) == (200, first.json())
        other = client.post(path, json=body | {"seed": 7}, headers=key)
        assert problems(other) == [(["header", "Idempotency-Key"], "idempotency_key_reused")]


# Paths.


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
            client.ordered(tool, **MINIMAL[tool])
        assert client.order("flux-tools/nonsense").status_code == 404
        assert client.get("/v1/flux-tools/erase-v1").status_code == 405
        listed = client.get("/v1/tasks", params={"limit": 100}).json()["tasks"]
        assert sorted(task["endpoint"] for task in listed) == sorted(TOOLS * 2)


@promise(
    "Decided: submission",
    "configurable list of family tokens that route to the same handlers (default none: `gen` only)",
)
def test_without_aliases_there_are_none(client: Client) -> None:
    assert refusal(client.order("flux-tools/erase-v1", **MINIMAL[ERASE]), 404).startswith("Not Found")


# The description.


@pytest.fixture
def described(client: Client) -> dict[str, Any]:
    return client.get("/openapi.json").json()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_is_described(described: dict[str, Any], tool: str) -> None:
    operation = described["paths"][f"/v1/{tool}"]["post"]
    assert operation["operationId"] == camel_case(tool)
    assert operation["summary"]
    assert set(operation["responses"]) == {"200", "401", "402", "403", "409", "413", "422", "429", "503"}
    assert set(described["paths"][f"/v1/{tool}"]) == {"post"}
    assert "parameters" not in operation or all(each["in"] == "header" for each in operation["parameters"])
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    form = described["components"]["schemas"][schema["$ref"].removeprefix("#/components/schemas/")]
    assert set(form["required"]) == set(MINIMAL[tool])
    assert {"webhook_url", "webhook_secret", "user", "seed", "safety_tolerance", "output_format"} <= set(
        form["properties"]
    )
    tolerance = form["properties"]["safety_tolerance"]["anyOf"][0]
    assert (tolerance["minimum"], tolerance["maximum"]) == (0, 6)
    assert (form.get("additionalProperties") is False) == (tool == OUTPAINTING)


def test_operations_have_names_that_stay_apart_in_any_language(described: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for path, methods in described["paths"].items()
        for operation in methods.values()
        if path.startswith("/v1/")
    ]
    assert len(names) == len({re.sub(r"[^a-z0-9]", "", name.lower()) for name in names})


def test_the_examples_of_a_tool_are_complete(described: dict[str, Any]) -> None:
    forms = described["components"]["schemas"]
    for name in ("EraseRequest", "OutpaintingRequest", "TryOnV1Request", "TryOnV2Request", "DeblurRequest"):
        for field, schema in forms[name]["properties"].items():
            assert schema["description"], (name, field)
            assert schema["examples"], (name, field)


@promise("Decided: errors", "never echo the value of a secret or an image")
def test_no_error_repeats_a_picture(client: Client) -> None:
    for tool in TOOLS:
        response = client.order(tool, **MINIMAL[tool], seed="x")
        assert problems(response) == [(["body", "seed"], "int_type")]
        assert PHOTO[:40] not in response.text
