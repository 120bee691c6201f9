from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from support.measured_load import measured

from serve_app.load import page, plots
from serve_app.load.knee import Knee, Rate, Trial
from serve_app.load.svg import Axis
from serve_app.load.sweep import Sweep


def plots_of(text: str) -> list[ET.Element]:
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_a_run_is_one_page_with_nothing_from_elsewhere() -> None:
    text = page.of_run(measured(refuse=10))
    assert "<script" not in text
    assert not re.search(r"(src|href|url\()\s*=?\s*[\"'(]?\s*(https?:)?//", text)
    assert "prefers-color-scheme: dark" in text
    assert len(plots_of(text)) == 3
    assert "refused: HTTP 429" in text
    assert "The generator was not the limit" in text


def test_names_of_others_are_text() -> None:
    text = page.of_run(measured())
    assert "<b>loud</b>" not in text
    assert "&lt;b&gt;loud&lt;/b&gt;" in text


def test_a_generator_that_was_the_limit_is_told_above_all() -> None:
    text = page.of_run(measured(lag=0.2))
    assert text.index("The generator was the limit") < text.index("within the objective")


def test_every_request_has_its_dot() -> None:
    run = measured(refuse=10)
    _, course, _ = plots_of("".join(plots.of_run(run)))
    dots = [each for each in course if each.tag == "circle"]
    assert len(dots) == len(run.outcomes)


def test_a_run_of_which_nothing_came_has_a_page_too() -> None:
    run = measured()
    run.outcomes.clear()
    assert len(plots_of(page.of_run(run))) == 3


def test_a_sweep_shows_its_rates_and_the_knee() -> None:
    held, failed = Rate(4.9, [Trial(100, 100)] * 2), Rate(5.1, [Trial(100, 90)] * 2)
    sweep = Sweep([measured(rate=5), measured(rate=2)], Knee(held, failed, 0.99), ["a note"])
    text = page.of_sweep(sweep)
    assert len(plots_of(text)) == 3
    assert "the knee: held by 100.00% of 200 requests in 2 runs" in text
    assert [each["rate"] for each in sweep.rates()] == [2, 5]
    assert "a note" in text
    assert page.of_sweep(Sweep())


def test_ticks_are_round_and_lie_on_the_axis() -> None:
    assert Axis("", 0, 10).ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis.over("", [0.02, 30], log=True).ticks() == [0.01, 0.1, 1, 10, 100]
    assert [Axis.over("", [0.1, 10], log=True).share(value) for value in (0.001, 0.1, 1, 10, 99)] == [0, 0, 0.5, 1, 1]
    assert Axis.over("", []).share(0.5) == 0.5
