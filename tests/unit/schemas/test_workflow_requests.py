"""Requests of ComfyUI workflows: their types, and what an operator may expose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.comfy_server import OBJECT_INFO

from deployments.contract.request import ResolvedRequest
from deployments.contract.workflow import ObjectInfo, Workflow, WorkflowError
from serve_app.cli.workflow import propose
from serve_app.schemas.defaults import ModelDefaults
from serve_app.schemas.workflow import WorkflowInput, WorkflowRequest, bind, workflow_request

GRAPH: dict[str, Any] = {
    "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a", "clip": ["1", 1]}, "_meta": {"title": "Positive"}},
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "seed": 1,
            "steps": 20,
            "cfg": 7.0,
            "sampler_name": "euler",
            "positive": ["2", 0],
            "negative": ["7", 0],
            "latent_image": ["5", 0],
        },
    },
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 768, "batch_size": 1}},
    "6": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry", "clip": ["1", 1]}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "mine"}},
}
WORKFLOW = Workflow(GRAPH)
INFO = ObjectInfo(OBJECT_INFO)


def form(**inputs: dict[str, Any]) -> type[WorkflowRequest]:
    return workflow_request("gen-x", bind(WORKFLOW, {k: WorkflowInput.model_validate(v) for k, v in inputs.items()}))


def resolve(request_type: type[WorkflowRequest], **body: Any) -> ResolvedRequest:
    return request_type.model_validate(body).resolve(ModelDefaults(steps=1), [])


def test_values_left_out_are_those_of_the_workflow() -> None:
    request = resolve(form(cfg={"at": "3.cfg"}, size={"at": ["5.width", "5.height"], "role": "size"}))
    values = {each.places[0]: each.value_in(request) for each in request.placements}
    assert values == {"3.cfg": 7.0, "5.width": 512, "5.height": 768}
    assert request.area == 512 * 768


def test_roles_fill_the_fields_that_the_service_reads() -> None:
    inputs: dict[str, dict[str, Any]] = {
        "words": {"at": "Positive.text", "role": "prompt"},
        "seed": {"at": "3.seed", "role": "seed"},
        "detail": {"at": "3.steps", "role": "steps", "max": 40},
    }
    request = resolve(form(**inputs), words="a star", seed=7, detail=30)
    assert (request.prompt, request.seed, request.steps) == ("a star", 7, 30)
    assert [each.value_in(request) for each in request.placements] == ["a star", 7, 30]


def test_text_without_a_role_is_moderated() -> None:
    request = resolve(form(caption={"at": "Positive.text"}, sampler={"at": "3.sampler_name"}), caption="a knife")
    assert "a knife" in request.text
    chosen = form(sampler={"at": "3.sampler_name", "options": ["euler", "dpmpp_2m"]})
    assert resolve(chosen).text == ""


def test_whole_number_in_the_file_may_stand_for_a_fraction() -> None:
    graph = {"3": {"class_type": "KSampler", "inputs": {"cfg": 7, "steps": 20, "sampler_name": "euler"}}}
    proposed = propose(Workflow(graph), INFO)
    assert (proposed["guidance"].type, proposed["steps"].type) == ("float", None)
    form = workflow_request("gen-x", bind(Workflow(graph), proposed))
    assert form.model_validate({"guidance": 3.5, "steps": 4}).model_dump()["guidance"] == 3.5
    assert resolve(form).placements[-1].value == 7


def test_named_option_stands_for_its_value() -> None:
    request = resolve(
        form(style={"at": "3.sampler_name", "options": {"soft": "euler", "hard": "dpmpp_2m"}}), style="hard"
    )
    assert request.placements[0].value == "dpmpp_2m"


@pytest.mark.parametrize(
    ("inputs", "body", "field"),
    [
        ({"cfg": {"at": "3.cfg", "max": 10}}, {"cfg": 11}, "cfg"),
        ({"cfg": {"at": "3.cfg"}}, {"cfg": "7"}, "cfg"),
        ({"steps": {"at": "3.steps"}}, {"steps": 1.5}, "steps"),
        ({"s": {"at": "3.sampler_name", "options": ["euler"]}}, {"s": "ddim"}, "s"),
        ({"face": {"at": "6.image", "type": "image"}}, {}, "face"),
        ({"cfg": {"at": "3.cfg"}}, {"3.cfg": 1}, "3.cfg"),
        ({"size": {"at": ["5.width", "5.height"], "role": "size"}}, {"width": 513}, "width"),
    ],
    ids=["above max", "text", "fraction", "no option", "no file", "not exposed", "no multiple"],
)
def test_refused_value_names_its_input(inputs: dict[str, Any], body: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        form(**inputs).model_validate(body)
    assert [error["loc"] for error in caught.value.errors()] == [(field,)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"at": "99.cfg"}, "no node '99'"),
        ({"at": "3.nothing"}, "no input 'nothing'; its inputs are cfg,"),
        ({"at": "3.positive"}, "linked to node '2'"),
        ({"at": "6.image"}, "type must be image"),
        ({"at": "3.cfg", "type": "image"}, "names no file"),
        ({"at": "3.sampler_name", "type": "float"}, "is no number"),
        ({"at": "3.cfg", "max": 101}, "the server accepts 0.0 to 100.0"),
        ({"at": "3.sampler_name", "options": ["ddim"]}, "the server has no 'ddim'"),
        ({"at": "Positive.text", "min": 1}, "min and max are for numbers"),
        ({"at": "5.width", "role": "size"}, "places of width and height"),
    ],
)
def test_wrong_place_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkflowError, match=f"inputs.x: .*{message}"):
        bind(WORKFLOW, {"x": WorkflowInput.model_validate(settings)}, INFO)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"a": {"at": "2.text", "role": "prompt"}, "b": {"at": "7.text", "role": "prompt"}},
            "role prompt stands twice",
        ),
        ({"s": {"at": "3.sampler_name", "options": ["dpmpp_2m"]}}, "'euler', the value of requests that have none"),
        ({"cfg": {"at": "3.cfg", "max": 40, "default": 100}}, "100, the value of requests"),
        ({"p": {"at": "9.filename_prefix"}}, "filename_prefix is this service's own"),
        ({"resolve": {"at": "3.cfg"}}, "resolve is a field of every request"),
        (
            {"width": {"at": "5.height"}, "size": {"at": ["5.width", "5.height"], "role": "size"}},
            "two inputs are named width",
        ),
    ],
)
def test_input_without_effect_is_refused(inputs: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        form(**inputs)


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ({"n": {"at": "3.steps", "role": "steps"}}, {"n": -5}),
        ({"cfg": {"at": "3.cfg"}}, {"cfg": float("inf")}),
        ({"seed": {"at": "3.seed", "role": "seed", "max": 100}}, {"seed": 500}),
    ],
)
def test_number_beyond_what_makes_sense_is_refused(inputs: dict[str, dict[str, Any]], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        form(**inputs).model_validate(body)


def test_random_seed_and_named_default_fit_their_input() -> None:
    drawn = form(seed={"at": "3.seed", "role": "seed", "max": 1})
    assert {resolve(drawn).seed for _ in range(50)} == {0, 1}
    names = {"soft": "euler", "hard": "dpmpp_2m"}
    chosen = form(s={"at": "3.sampler_name", "options": names, "default": "hard"})
    assert resolve(chosen).placements[0].value == "dpmpp_2m"
    assert resolve(form(width={"at": "5.width"}), width=64).placements[0].value == 64


def test_missing_node_class_is_named() -> None:
    graph = GRAPH | {"10": {"class_type": "FancyNode", "inputs": {}}}
    with pytest.raises(WorkflowError, match="the server has no node class FancyNode"):
        bind(Workflow(graph), {}, INFO)


@pytest.mark.parametrize(
    ("content", "message"),
    [({"nodes": [], "links": []}, "Export"), ({"3": {"inputs": {}}}, "no workflow"), ([], "no workflow")],
    ids=["editor format", "no class", "list"],
)
def test_file_in_another_format_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps(content))
    with pytest.raises(WorkflowError, match=message):
        Workflow.load(file)


def test_inputs_that_people_change_are_proposed() -> None:
    found = {name: (settings.role or settings.type, settings.at) for name, settings in propose(WORKFLOW, INFO).items()}
    assert found == {
        "prompt": ("prompt", "2.text"),
        "negative_prompt": ("negative_prompt", "7.text"),
        "seed": ("seed", "3.seed"),
        "size": ("size", ("5.width", "5.height")),
        "steps": ("steps", "3.steps"),
        "guidance": (None, "3.cfg"),
        "image": ("image", "6.image"),
    }
    bind(WORKFLOW, propose(WORKFLOW, INFO), INFO)
