"""What clients know of the interface is what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import generate_types
import pytest
from gen_serve_client import types


@pytest.fixture(scope="module")
def description(repository: Path) -> dict[str, Any]:
    return json.loads((repository / "openapi.json").read_text())


def test_the_python_types_are_current(description: dict[str, Any]) -> None:
    assert generate_types.PYTHON_FILE.read_text() == generate_types.python(description), "run `make openapi`"


def test_the_typescript_types_are_current(description: dict[str, Any]) -> None:
    assert generate_types.TYPESCRIPT_FILE.read_text() == generate_types.typescript(description), "run `make openapi`"


def test_every_endpoint_that_takes_a_body_is_known(description: dict[str, Any]) -> None:
    served = {
        path.removeprefix("/v1/")
        for path, methods in description["paths"].items()
        if "generate" in methods.get("post", {}).get("tags", ()) and "410" not in methods["post"]["responses"]
    }
    assert len(served) > 20
    assert set(get_args(types.Endpoint)) == served


def test_a_description_that_changed_makes_other_types(description: dict[str, Any]) -> None:
    described = json.loads(json.dumps(description))
    described["components"]["schemas"]["ImageKleinRequest"]["properties"]["mood"] = {"enum": ["calm", "wild"]}
    assert 'mood: NotRequired[Literal["calm", "wild"]]' in generate_types.python(described)
    assert 'mood?: "calm" | "wild";' in generate_types.typescript(described)
