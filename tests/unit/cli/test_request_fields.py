"""Fields of a request at the command line, without a service that says what it takes, and with odd ones."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.cli.fields import Description, Form, request_body

FORMS = {"schema": {"oneOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/schemas/B"}]}}
OPERATION = {"tags": ["generate"], "requestBody": {"content": {"application/json": FORMS}}}
TEXTS = {"type": "array", "items": {"type": "string"}}
A = {"duration": {"anyOf": [{"type": "integer"}, {"const": "auto", "type": "string"}]}}
B = {
    "keyframes": {"anyOf": [{"type": "string"}, TEXTS, {"type": "array"}]},
    "strength": {"type": "number"},
    "tags": TEXTS,
}
VIDEO = {
    "paths": {"/v1/gen-3-video": {"post": OPERATION}},
    "components": {"schemas": {"A": {"properties": A}, "B": {"properties": B}}},
}


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (["steps=4", "prompt=a cat"], {"steps": 4, "prompt": "a cat"}),
        (["images=https://a.test/a.png", "images=https://a.test/b.png"], {"images": ["https://a.test/a.png", "https://a.test/b.png"]}),
        (["prompt:=\"1984\""], {"prompt": "1984"}),
        (["x=two\nlines"], {"x": "two\nlines"}),
        ([], {}),
    ],
)  # fmt: skip
def test_a_service_that_says_nothing_gets_json_where_it_is_json(fields: list[str], body: dict[str, Any]) -> None:
    assert request_body(fields, Form()) == body


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (["duration=5"], {"duration": 5}),
        (["duration=auto"], {"duration": "auto"}),
        (["strength=0.5"], {"strength": 0.5}),
        (["strength=much"], {"strength": "much"}),
        (["tags=1", "tags=2"], {"tags": ["1", "2"]}),
        (['tags=["1", "2"]'], {"tags": ["1", "2"]}),
        (["keyframes=https://a.test/a.png"], {"keyframes": "https://a.test/a.png"}),
        (['keyframes:=[[0, "https://a.test/a.png"]]'], {"keyframes": [[0, "https://a.test/a.png"]]}),
    ],
)
def test_alternatives_of_a_field_and_of_a_body_are_all_taken(fields: list[str], body: dict[str, Any]) -> None:
    assert request_body(fields, Description(VIDEO).form("gen-3-video")) == body


@pytest.mark.parametrize(
    "operation",
    [{}, {"requestBody": {}}, {"requestBody": {"content": {"application/json": {"schema": {"$ref": "x"}}}}}],
)
def test_a_description_of_another_form_says_nothing(operation: dict[str, Any]) -> None:
    document = {"paths": {"/v1/odd": {"post": {"tags": ["generate"], **operation}}}}
    assert Description(document).form("odd").fields is None


def test_another_family_name_is_the_same_endpoint_and_what_offers_no_format_makes_videos() -> None:
    assert Description(VIDEO).form("flux-3-video").fields
    assert Description(VIDEO).form("flux-4-video").fields is None
    assert (Description(VIDEO).form("gen-3-video").formats, Form().formats) == (("mp4",), None)
