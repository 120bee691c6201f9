"""The command line before it calls the service: imports, and the fields of a request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_app.cli.fields import Description, Form, request_body

LAUNCHER = "import sys, serve_app.launcher.launcher, serve_app.cli.cluster; print(*sys.modules)"
VERSION = """
import sys
from serve_app.cli import main
try: main()
finally: print(*sys.modules)
"""
BUILD = """
import sys
from pathlib import Path
from serve_app import application
from serve_app.config.settings import load
application.build(load(Path("configs/local.yaml")))
print(*sys.modules)
"""


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        (VERSION, {"ray", "redis", "torch", "fastapi"}),
        (LAUNCHER, {"ray"}),  # it reads its flags when it is imported
        (BUILD, {"torch", "diffusers", "transformers", "mcp", "serve_app.api.app"}),
    ],
    ids=["version", "launcher", "build"],
)
def test_process_imports_only_needed_packages(code: str, unwanted: set[str], repository: Path) -> None:
    command = [sys.executable, "-c", code, "--version"]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120, check=True)
    assert "serve_app" in result.stdout.split()
    assert not unwanted & set(result.stdout.split())


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
        (["images=https://a.test/a", "images=https://a.test/b"], {"images": ["https://a.test/a", "https://a.test/b"]}),
        (['prompt:="1984"'], {"prompt": "1984"}),
        (["x=two\nlines"], {"x": "two\nlines"}),
        ([], {}),
    ],
)
def test_values_of_undescribed_fields_are_json_or_text(fields: list[str], body: dict[str, Any]) -> None:
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
def test_values_have_a_type_that_their_field_allows(fields: list[str], body: dict[str, Any]) -> None:
    assert request_body(fields, Description(VIDEO).form("gen-3-video")) == body


@pytest.mark.parametrize(
    "operation",
    [{}, {"requestBody": {}}, {"requestBody": {"content": {"application/json": {"schema": {"$ref": "x"}}}}}],
)
def test_unusable_description_describes_no_fields(operation: dict[str, Any]) -> None:
    document = {"paths": {"/v1/odd": {"post": {"tags": ["generate"], **operation}}}}
    assert Description(document).form("odd").fields is None


def test_alias_of_an_endpoint_has_its_description() -> None:
    assert Description(VIDEO).form("flux-3-video").fields
    assert Description(VIDEO).form("flux-4-video").fields is None
    assert (Description(VIDEO).form("gen-3-video").formats, Form().formats) == (("mp4",), None)
