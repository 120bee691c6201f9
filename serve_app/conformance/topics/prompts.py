"""Prompts that end with a JSON array which says where things go."""

from __future__ import annotations

import json
from typing import Any, Final

from serve_app.conformance import pictures
from serve_app.conformance.answers import Json
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN
from serve_app.conformance.session import Session
from serve_app.conformance.verdicts import expect

topic = Topic("prompts")

_SECTION: Final = "Region entry"
_DECIDED: Final = "Decided: structured prompts"
_BOX: Final = [100, 100, 900, 900]


def _prompt(*rows: Any) -> str:
    return f"a room with <cat_1> {json.dumps(rows)}"


def _new(**change: Any) -> Json:
    return {"id": "cat_1", "bbox": _BOX, "desc": "a sleeping cat"} | change


def _edit(**change: Any) -> Json:
    taken = {"id": "cat_1", "from": "ref_image_0", "src_bbox": _BOX, "tgt_bbox": _BOX, "desc": "a sleeping cat"}
    return taken | change


async def _takes(session: Session, *rows: Any, images: int = 0) -> None:
    change: Json = {"prompt": _prompt(*rows)}
    await session.takes(KLEIN, change | ({"images": [pictures.photo()] * images} if images else {}))


async def _refuses(session: Session, *rows: Any, images: int = 0) -> None:
    change: Json = {"prompt": _prompt(*rows)} | ({"images": [pictures.photo()] * images} if images else {})
    entry = await session.refuses(KLEIN, change, "prompt")
    expect(entry["loc"] == ["body", "prompt"], 'loc ["body", "prompt"]')


@topic.holds(_SECTION, "A prompt string may end with a JSON array, written as text inside the prompt.")
async def prompts_may_end_with_an_array(session: Session) -> None:
    await _takes(session, _new())
    await _takes(session, _new(), _new(id="cat_2"))


@topic.holds(_SECTION, "`id`: string: Name used as the placeholder in the prompt")
async def ids_are_strings(session: Session) -> None:
    await _refuses(session, _new(id=7))


@topic.holds(_SECTION, "`bbox`: array of 4 integers: Box for a generated element (text-to-image form)")
async def boxes_are_four_integers(session: Session) -> None:
    for box in ([1, 2, 3], [1, 2, 3, 4, 5], [0.5, 1, 2, 3], "box", None):
        await _refuses(session, _new(bbox=box))


@topic.holds(
    _SECTION, "`from`: string or null: Reference image name the element is taken from; null when it is newly described"
)
async def elements_come_from_references(session: Session) -> None:
    await _takes(session, _edit(), images=1)
    await _takes(session, _edit(**{"from": None, "src_bbox": None}), images=1)
    await _refuses(session, _edit(**{"from": "ref_image_5"}), images=1)


@topic.holds(_SECTION, "The reference image inside the prompt is named `<ref_image_0>`")
async def references_may_be_in_brackets(session: Session) -> None:
    await _takes(session, _edit(**{"from": "<ref_image_0>"}), images=1)


@topic.holds(_SECTION, "further references are referred to by index in the same style")
async def further_references_have_an_index(session: Session) -> None:
    await _takes(session, _edit(**{"from": "ref_image_1"}), images=2)


@topic.holds(_SECTION, "`src_bbox`: array of 4 integers or null: Box of the element in the reference image")
async def source_boxes_are_four_integers(session: Session) -> None:
    await _refuses(session, _edit(src_bbox=[1, 2]), images=1)


@topic.holds(_SECTION, "`tgt_bbox`: array of 4 integers: Box where the element is to appear")
async def target_boxes_are_four_integers(session: Session) -> None:
    await _refuses(session, _edit(tgt_bbox=[1, 2]), images=1)


@topic.holds(_SECTION, "`desc`: string: Free-text description of the element")
async def descriptions_are_strings(session: Session) -> None:
    await _refuses(session, _new(desc=7))


@topic.holds(_SECTION, "Coordinates in the examples are integers in the range 0 to 1000.")
async def coordinates_have_a_range(session: Session) -> None:
    await _takes(session, _new(bbox=[0, 0, 1000, 1000]))
    await _refuses(session, _new(bbox=[0, 0, 1001, 1000]))
    await _refuses(session, _new(bbox=[-1, 0, 1000, 1000]))


@topic.holds(
    _SECTION,
    "The text-to-image form uses `id`, `bbox`, `desc`; the edit form uses `id`, `from`, `src_bbox`, `tgt_bbox`, "
    "`desc`.",
)
async def forms_have_their_keys(session: Session) -> None:
    await _refuses(session, {"id": "cat_1", "bbox": _BOX})
    await _refuses(session, _new(color="red"))
    await _refuses(session, {name: value for name, value in _edit().items() if name != "desc"}, images=1)


@topic.holds(_DECIDED, "Boxes are `[top, left, bottom, right]`")
async def boxes_have_an_order(session: Session) -> None:
    await _refuses(session, _new(bbox=[900, 100, 100, 900]))
    await _refuses(session, _new(bbox=[100, 900, 900, 100]))


@topic.holds(_DECIDED, "no mixing.")
async def forms_are_not_mixed(session: Session) -> None:
    await _refuses(session, _new(), _edit(id="cat_2"), images=1)


@topic.holds(_DECIDED, "`src == tgt` keeps, differing moves or resizes, `tgt_bbox: null` removes, `from: null` is new.")
async def elements_can_be_removed(session: Session) -> None:
    await _takes(session, _edit(tgt_bbox=None), images=1)
    await _takes(session, _edit(tgt_bbox=[0, 0, 100, 100]), images=1)


@topic.holds(_DECIDED, 'A trailing array that parses but breaks these rules is a 422 at `["body", "prompt"]`')
async def arrays_that_break_rules_are_refused(session: Session) -> None:
    await _refuses(session, _new(), 5)
    await _refuses(session, _new(), _new())


@topic.holds(_DECIDED, "text that does not parse as an array is plain text")
async def other_brackets_are_text(session: Session) -> None:
    for prompt in ("a sign that says [open", "a room [with {curly} words]"):
        await session.takes(KLEIN, {"prompt": prompt})


@topic.holds(_DECIDED, "The text reaches the model unchanged", credits=1)
async def the_prompt_stays_as_it_is(session: Session) -> None:
    prompt = _prompt(_new())
    result = (await session.finished(KLEIN, {"prompt": prompt}))["result"]
    expect(result.get("prompt") == prompt, "the prompt as it was sent")
