from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET

from gen_serve_bench.report import page_of_run, page_of_sweep, tables_of_sweep
from gen_serve_bench.results import Sweep
from support.load_runs import measured


def charts(page: str) -> list[ET.Element]:
    return [
        ET.fromstring(base64.b64decode(found)) for found in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)
    ]


def test_a_run_is_one_page_with_nothing_from_elsewhere() -> None:
    page = page_of_run(measured(refuse=10))
    assert "<script" not in page
    assert not re.search(r"(src|href|url\()\s*=?\s*[\"'(]?\s*(https?:)?//", page)
    assert len(charts(page)) == 3
    assert "refused: HTTP 429" in page
    assert "the generator was the limit" not in page
    assert "sent late by, p99, s" in page


def test_names_of_others_are_text() -> None:
    page = page_of_run(measured())
    assert "<b>loud</b>" not in page
    assert "&lt;b&gt;loud&lt;/b&gt;" in page


def test_a_generator_that_was_the_limit_is_told_above_all() -> None:
    page = page_of_run(measured(lag=0.2))
    assert page.index("the generator was the limit") < page.index("within the objective")


def test_a_run_of_which_nothing_came_has_a_page_too() -> None:
    run = measured()
    run.outcomes.clear()
    assert len(charts(page_of_run(run))) == 3


def test_a_sweep_shows_its_rates() -> None:
    sweep = Sweep([measured(rate=5), measured(rate=2)], ["a note"])
    page = page_of_sweep(sweep)
    assert len(charts(page)) == 3
    assert "a note" in page
    assert [row[0] for row in tables_of_sweep(sweep)[0].rows] == ["2", "5"]
    assert page_of_sweep(Sweep())
