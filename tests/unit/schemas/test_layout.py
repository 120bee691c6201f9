from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.request import LayoutRow
from serve_app.schemas import layout
from serve_app.schemas.layout import LayoutError, caption, parse_layout

BOX = [10, 20, 300, 400]
GENERATE: dict[str, Any] = {"id": "cat_1", "bbox": BOX, "desc": "a cat"}
EDIT: dict[str, Any] = {"id": "cat_1", "from": "ref_image_0", "src_bbox": BOX, "tgt_bbox": BOX, "desc": "a cat"}


EDIT_ROW = LayoutRow("cat_1", (10, 20, 300, 400), "a cat", "ref_image_0", (10, 20, 300, 400))


def _prompt(*rows: Any, text: str = "A room with <cat_1> ") -> str:
    return text + json.dumps(rows)


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({}, EDIT_ROW),
        ({"tgt_bbox": [0, 0, 1, 1]}, replace(EDIT_ROW, target=(0, 0, 1, 1))),
        ({"tgt_bbox": None}, replace(EDIT_ROW, target=None)),
        ({"from": None, "src_bbox": None}, replace(EDIT_ROW, source=None, source_box=None)),
        ({"desc": ""}, replace(EDIT_ROW, description="")),
        ({"from": "<ref_image_0>"}, EDIT_ROW),
    ],
)
def test_edit_row_is_parsed(change: dict[str, Any], row: LayoutRow) -> None:
    assert parse_layout(_prompt({**EDIT, **change})) == (row,)


@pytest.mark.parametrize(
    "prompt", ["nothing []", 'broken [{"id": NaN}]', f"{_prompt(GENERATE)} and more text", "[" * 5000 + "]"]
)
def test_text_that_is_no_layout_stays_text(prompt: str) -> None:
    assert parse_layout(prompt) == ()
    assert caption(prompt) == prompt


def test_only_the_array_at_the_end_is_a_layout() -> None:
    prompt = 'A sign "[{" by <cat_1>, [1], [{"x": 1}] ' + json.dumps([GENERATE], indent=2) + " \n"
    assert [row.name for row in parse_layout(prompt)] == ["cat_1"]
    assert caption(prompt) == 'A sign "[{" by <cat_1>, [1], [{"x": 1}]'


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{**GENERATE, "bbox": [10, 20, 10, 400]}], "bbox of layout row 0"),
        ([{**GENERATE, "bbox": [10, 400, 300, 400]}], "bbox of layout row 0"),
        ([{**EDIT, "src_bbox": [-1, 20, 300, 400]}], "src_bbox of layout row 0"),
        ([{**EDIT, "tgt_bbox": [10, 20, 300, 1001]}], "tgt_bbox of layout row 0"),
        ([{**GENERATE, "bbox": [False, 20, 300, 400]}], "bbox of layout row 0"),
        ([{**GENERATE, "bbox": [0, 20, 300, 400.0]}], "bbox of layout row 0"),
        ([{"id": "cat_1", "bbox": BOX}], "exactly the keys"),
        ([EDIT, {**GENERATE, "id": "dog_1"}], "layout row 1 must have exactly the keys"),
        ([GENERATE, GENERATE], "'cat_1' occurs more than once"),
        ([{**GENERATE, "id": ""}], "id of layout row 0"),
        ([{**GENERATE, "desc": None}], "desc of layout row 0"),
        ([{**EDIT, "from": 0}], "from of layout row 0"),
        ([{**EDIT, "from": None, "tgt_bbox": None}], "nothing to do"),
        ([5, GENERATE], "row 0 must be an object"),
    ],
)
def test_invalid_layout_is_refused_and_cut_from_the_caption(rows: list[Any], problem: str) -> None:
    prompt = _prompt(*rows)
    with pytest.raises(LayoutError, match=problem):
        parse_layout(prompt)
    assert caption(prompt) == "A room with <cat_1>"


LETTERS = "abé日🐈 <>(){}[]:,.0\"\\'\n\t\u2028"
BOXES = st.sampled_from([[0, 0, 1000, 1000], BOX, [999, 0, 1000, 1]])
NAMES, TEXT = st.text(LETTERS, min_size=1, max_size=12), st.text(LETTERS, max_size=60)


@given(TEXT, st.dictionaries(NAMES, st.tuples(BOXES, TEXT), min_size=1, max_size=4), st.booleans())
def test_written_rows_are_read(text: str, rows: dict[str, tuple[list[int], str]], ascii_only: bool) -> None:
    entries = [{"id": name, "bbox": box, "desc": description} for name, (box, description) in rows.items()]
    prompt = f"{text.replace('[', '(')} {json.dumps(entries, ensure_ascii=ascii_only)}"
    read = [{"id": row.name, "bbox": list(row.target or ()), "desc": row.description} for row in parse_layout(prompt)]
    assert read == entries


@given(st.text(alphabet='[]{}",: 1aidbox', max_size=80))
def test_any_text_is_a_layout_or_plain_or_an_error(prompt: str) -> None:
    try:
        rows = parse_layout(prompt)
    except LayoutError:
        return
    assert bool(rows) == (caption(prompt) != prompt)


class CountingDecoder(json.JSONDecoder):
    calls = 0

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        self.calls += 1
        return super().raw_decode(s, idx)


@pytest.mark.parametrize("piece", ["[{", '[{"a":1},', '[{"a":[', '[{"', "[1,", "[[", '["'])
def test_hostile_text_is_decoded_a_limited_number_of_times(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = CountingDecoder()
    monkeypatch.setattr(layout, "_DECODER", decoder)
    parse_layout(piece * (32_000 // len(piece)) + "]")
    assert 0 < decoder.calls <= 64
