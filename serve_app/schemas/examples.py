"""Example bodies in the API description (`examples.yaml`)."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from deployments.contract.job import media_type

FINETUNE_FIELDS: Final = {"finetune_id": "4f0c1d2e9a7b6c5d", "finetune_strength": 1.1}
"""Additional fields of a body for a `-finetuned` endpoint. No tuned model has this id."""
DRAFT: Final = "DRAFT"
"""Placeholder for the id of a draft's task."""

_HERE: Final = Path(__file__).parent
_FILE: Final = "file:"


def examples(request: str, *, tuned: bool) -> dict[str, dict[str, Any]]:
    """Returns bodies for a request of the catalog by their titles. `tuned`: for its `-finetuned` endpoint."""
    return {name: _fill_in(body) | (FINETUNE_FIELDS if tuned else {}) for name, body in _load()[request].items()}


@cache
def _load() -> dict[str, dict[str, dict[str, Any]]]:
    return yaml.safe_load((_HERE / "examples.yaml").read_text())


def _fill_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _fill_in(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_fill_in(each) for each in value]
    if isinstance(value, str) and value.startswith(_FILE):
        return example_file(value.removeprefix(_FILE))
    return value


def example_file(name: str) -> str:
    """Returns one of `example_files` as a data URI."""
    path = _HERE / "example_files" / name
    return f"data:{media_type(path.name)};base64,{base64.b64encode(path.read_bytes()).decode()}"
