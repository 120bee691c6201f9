"""Prompts that end with a JSON array which says where things go."""

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
    """With as many references as the edit forms need."""
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
def test_a_layout_is_taken_or_refused(server: ServerUnderTest, rule: Json) -> None:
    if "taken" in rule:
        server.takes(KLEIN, **_request(rule["taken"]))
    else:
        assert server.refuses(KLEIN, "prompt", **_request(rule["refused"]))["loc"] == ["body", "prompt"]


@promise(_DECIDED, "text that does not parse as an array is plain text")
@pytest.mark.parametrize("prompt", ["a sign that says [open", "a room [with {curly} words]"])
def test_other_brackets_are_text(server: ServerUnderTest, prompt: str) -> None:
    server.takes(KLEIN, prompt=prompt)


@pytest.mark.needs("results")
@promise(_DECIDED, "The text reaches the model unchanged")
def test_the_prompt_stays_as_it_is(server: ServerUnderTest) -> None:
    prompt = _request({"new": {}})["prompt"]
    assert server.run_task(prompt=prompt)["result"]["prompt"] == prompt
