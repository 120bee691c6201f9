"""The reference of settings, which is written from their types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from serve_app.config import reference


@pytest.mark.parametrize(
    ("path", "write"),
    [(reference.LOCAL, reference.local_yaml), (reference.PAGE, reference.page)],
    ids=["local", "page"],
)
def test_comments_and_table_are_current(path: Path, write: Callable[[str], str]) -> None:
    assert write(path.read_text()) == path.read_text(), "make settings"


def test_json_schema_is_current() -> None:
    assert reference.schema() == json.loads(reference.SCHEMA.read_text()), "make settings"


def test_every_setting_has_a_description() -> None:
    assert [row for row in reference.table().splitlines() if row.endswith("|  |")] == []


def test_profiles_follow_the_json_schema(repository: Path) -> None:
    schema = json.loads(reference.SCHEMA.read_text())
    for profile in ("local", "single-gpu", "cluster"):
        jsonschema.validate(yaml.safe_load((repository / f"configs/{profile}.yaml").read_text()), schema)
