from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from deployments.contract.moderation import CATEGORIES
from serve_app.moderation.settings import ModerationCatalog, ModerationSettings

JUDGES = {"text": [{"backend": "lexicon"}], "pictures": [{"backend": "skin"}]}
ALL = {name: [0.2, 0.5] for name in CATEGORIES}


def test_the_catalog_has_thresholds_for_every_category(repository: Path) -> None:
    written = yaml.safe_load((repository / "configs/catalog.yaml").read_text())["moderation"]
    assert set(ModerationCatalog.model_validate(written).thresholds) == set(CATEGORIES)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({name: [0.5] for name in CATEGORIES[1:]}, f"{CATEGORIES[0]} missing"),
        (ALL | {"hate": [0.5, 0.4]}, "those of hate must not fall"),
        (ALL | {"hate": []}, "at least 1 item"),
        (ALL | {"hate": [1.5]}, "less than or equal to 1"),
        (ALL | {"rudeness": [0.5]}, "must be one of sexual content"),
    ],
)
def test_thresholds_are_complete_and_in_order(thresholds: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModerationCatalog.model_validate(JUDGES | {"thresholds": thresholds})


@pytest.mark.parametrize("kind", ["text", "pictures"])
def test_a_catalog_has_judges_of_both_kinds(kind: str) -> None:
    with pytest.raises(ValidationError, match=f"{kind}: at least one judge"):
        ModerationCatalog.model_validate(JUDGES | {"thresholds": ALL, kind: []})


@pytest.mark.parametrize(
    ("judges", "message"),
    [
        ({"text": [{"backend": "oracle"}]}, "text: backend 'oracle' must be one of"),
        ({"pictures": [{"backend": "lexicon"}]}, "pictures: backend 'lexicon' must be one of"),
        ({"text": [{"backend": "guard", "labels": {"toxic": "rudeness"}}]}, "labels"),
    ],
)
def test_judges_are_known_by_name_and_their_labels_mean_something(judges: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModerationSettings.model_validate(judges)
