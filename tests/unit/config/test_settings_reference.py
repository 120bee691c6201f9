"""The generated reference of settings."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import yaml

from serve_app.config import reference

LOCAL = Path("configs/local.yaml")


def test_the_page_and_the_schema_are_those_of_the_settings() -> None:
    text = LOCAL.read_text()
    assert reference.table(text) in Path("docs/settings.md").read_text(), "make settings"
    assert reference.schema(text) == json.loads(Path("configs/settings.schema.json").read_text()), "make settings"


def test_the_profiles_follow_the_schema() -> None:
    schema = json.loads(Path("configs/settings.schema.json").read_text())
    for profile in ("local", "single-gpu", "cluster"):
        jsonschema.validate(yaml.safe_load(Path(f"configs/{profile}.yaml").read_text()), schema)
