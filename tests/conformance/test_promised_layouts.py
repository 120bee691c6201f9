"""Layouts: prompts that end with a JSON array of boxes."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from sent_images import photo
from server_under_test import KLEIN, RULES, Json, ServerUnderTest
from support.promises import promise

_DECIDED: Final = "Decided: structured prompts"
_BOX: Final = [100, 100, 900, 900]
_FORMS: Final[dict[str, Json]] = {
    "new": {"id": "cat_1", "bbox": _BOX, "desc": "a sleeping cat"},
    "edit": {"id": "cat_1", "from": "ref_image_0", "src_bbox": _BOX, "tgt_bbox": _BOX, "desc": "a sleeping cat"},
}


def _request(changes: Json) -> Json:
    """Returns a body with the layout and as many references as its edit forms need."""
    forms = {name: _FORMS.get(name.split()[0]) for name in changes}
    rows = [
        change if form is None else form | change for form, change in zip(forms.values(), changes.values(), strict=True)
    ]
    images = 1 + ("ref_image_1" in str(rows)) if "edit" in forms else 0
    return {"prompt": f"a room with <cat_1> {json.dumps(rows)}"} | ({"images": [photo()] * images} if images else {})


def _mark(rule: Json) -> Any:
    section, sentence = ("Region entry", rule["says"]) if "says" in rule else (_DECIDED, rule["decided"])
    return pytest.param(rule, marks=promise(section, sentence))


@pytest.mark.parametrize("rule", [_mark(rule) for rule in RULES["layouts"]])
def test_layout_is_accepted_or_rejected(server: ServerUnderTest, rule: Json) -> None:
    if "accepted" in rule:
        server.expect_accepted(KLEIN, **_request(rule["accepted"]))
    else:
        assert server.expect_rejected(KLEIN, "prompt", **_request(rule["rejected"]))["loc"] == ["body", "prompt"]


@promise(_DECIDED, "text that does not parse as an array is plain text")
@pytest.mark.parametrize("prompt", ["a sign that says [open", "a room [with {curly} words]"])
def test_text_in_brackets_is_no_layout(server: ServerUnderTest, prompt: str) -> None:
    server.expect_accepted(KLEIN, prompt=prompt)


@pytest.mark.needs("results")
@promise(_DECIDED, "The text reaches the model unchanged")
def test_layout_stays_in_the_prompt(server: ServerUnderTest) -> None:
    prompt = _request({"new": {}})["prompt"]
    assert server.run_task(prompt=prompt)["result"]["prompt"] == prompt
