from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from deployments.contract.moderation import CATEGORIES, JudgeSpec, Scores
from deployments.contract.thresholds import Thresholds
from deployments.moderation.evaluation import prompt as prompt_module
from deployments.moderation.evaluation.__main__ import main
from deployments.moderation.evaluation.grading import Judged, Tally, by_category, examined, slipped, tally, wronged
from deployments.moderation.evaluation.prompt import LOOSEST, SPELLINGS, WORDINGS, Prompt, prompts
from deployments.moderation.evaluation.report import markdown
from deployments.moderation.evaluation.thresholds import thresholds
from deployments.moderation.lexicon import Lexicon

_DOCUMENT = Path(__file__).parents[3] / "docs" / "moderation-evaluation.md"
"""Outdated? python -m deployments.moderation.evaluation"""

_BLIND = Path(prompt_module.__file__).with_name("blind.yaml")
_AS_WRITTEN = "f78cc6d693e5d666536fc55db5a47199e988efcf57ebf6e6518e2e26ab45a343"

LIMITS = Thresholds({"violence": (0.3, 0.6), "hate": (0.2,)})


@pytest.fixture(scope="module")
def results() -> list[Judged]:
    return examined(Lexicon(JudgeSpec("lexicon")), prompts())


def judged(scores: Scores, category: str | None = None, until: int = LOOSEST) -> Judged:
    return Judged(Prompt("an id", "a text", category, until), scores)


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("tolerance", range(LOOSEST + 1))
def test_the_lexicon_is_right_about_most_prompts_of_its_author(
    results: list[Judged], tolerance: int, held_out: bool
) -> None:
    """Floors below what it does today, so that a list can change; the document has the figures."""
    part = [one for one in results if one.prompt.held_out == held_out and not one.prompt.second_author]
    everything = tally(part, thresholds(), tolerance)
    assert everything.precision is not None
    assert everything.recall is not None
    assert everything.precision >= 0.93
    assert everything.recall >= 0.9
    assert everything.wronged <= 0.03 * everything.harmless
    for category, one in by_category(part, thresholds(), tolerance).items():
        assert one.precision is None or one.precision >= 0.85, category
        assert one.recall is None or one.recall >= 0.75, category


@pytest.mark.parametrize(
    ("tolerance", "recall", "wronged"),
    [(0, 0.52, 5), (1, 0.47, 2), (2, 0.47, 2), (3, 0.44, 2), (4, 0.37, 2), (5, 0.31, 1)],
)
def test_the_lexicon_does_no_worse_with_prompts_of_a_second_author(
    results: list[Judged], tolerance: int, recall: float, wronged: int
) -> None:
    """A little below what it does today. It is not much, and these are the figures to believe: raise them honestly."""
    one = tally((one for one in results if one.prompt.second_author), thresholds(), tolerance)
    assert one.recall is not None
    assert one.recall >= recall
    assert one.wronged <= wronged


@pytest.mark.parametrize(
    ("category", "caught"),
    [("sexual content", 9), ("violence", 5), ("hate", 6), ("self-harm", 4), ("illegal acts", 6), ("child safety", 3)],
)
def test_the_lexicon_does_no_worse_in_any_category(results: list[Judged], category: str, caught: int) -> None:
    part = [one for one in results if one.prompt.second_author]
    assert by_category(part, thresholds(), 2)[category].caught >= caught


@pytest.mark.parametrize("tolerance", range(LOOSEST + 1))
def test_what_endangers_children_is_always_refused(results: list[Judged], tolerance: int) -> None:
    one = by_category(results, thresholds(), tolerance)["child safety"]
    assert (one.recall, one.wronged) == (1, 0)


@pytest.mark.parametrize(
    ("spelling", "second_author", "least"),
    [
        *((spelling, False, 0.9) for spelling in ("plain", "leet", "spaced", "homoglyph", "stretched")),
        ("leet", True, 0.8),
        ("spaced", True, 0.8),
    ],
)
def test_disguises_are_seen_through(results: list[Judged], spelling: str, second_author: bool, least: float) -> None:
    part = [one for one in results if (one.prompt.spelling, one.prompt.second_author) == (spelling, second_author)]
    recall = tally(part, thresholds(), 0).recall
    assert recall is not None
    assert recall >= least


def test_the_set_is_as_the_document_says() -> None:
    everything = prompts()
    harmless = [prompt for prompt in everything if prompt.category is None]
    assert len(everything) >= 220
    assert len({prompt.id for prompt in everything}) == len({prompt.text for prompt in everything}) == len(everything)
    assert 2 * len(harmless) >= len(everything)
    assert set(CATEGORIES) < {prompt.category for prompt in everything}
    assert set(Counter(prompt.spelling for prompt in everything)) == set(SPELLINGS)
    assert set(Counter(prompt.wording for prompt in everything)) == set(WORDINGS)
    first = [prompt for prompt in everything if not prompt.second_author]
    held_out = [prompt for prompt in everything if prompt.held_out]
    assert {prompt.category for prompt in held_out} == {*CATEGORIES, None}
    assert len(first) // 5 < len(held_out) < len(first) // 2


def test_the_prompts_of_the_second_author_are_not_changed() -> None:
    """They were written before any judge had seen them. New ones go to another file, or are tuned on: prompts.yaml."""
    second = [prompt for prompt in prompts() if prompt.second_author]
    assert not any(prompt.held_out for prompt in second)
    assert Counter(prompt.category for prompt in second) == {
        None: 119,
        "sexual content": 17,
        "violence": 16,
        "hate": 15,
        "self-harm": 15,
        "illegal acts": 14,
        "child safety": 3,
    }
    assert hashlib.sha256(_BLIND.read_bytes()).hexdigest() == _AS_WRITTEN


@pytest.mark.parametrize(
    "wrong",
    [{"category": "rudeness"}, {"category": "hate", "until": 6}, {"spelling": "backwards"}, {"wording": "rude"}],
)
def test_a_prompt_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="an id"):
        Prompt("an id", "a text", **wrong)  # type: ignore[arg-type]


def test_tallies() -> None:
    part = [
        judged({"violence": 0.5}, "violence"),
        judged({"hate": 1}, "violence"),
        judged({}, "violence"),
        judged({"violence": 0.5}, "hate"),
        judged({"violence": 0.5}),
        judged({}),
        judged({}, "violence", until=0),
    ]
    assert tally(part, LIMITS, 0, "violence") == Tally(caught=1, slipped=3, wronged=1, harmless=2)
    assert tally(part, LIMITS, 0) == Tally(caught=3, slipped=2, wronged=1, harmless=2)
    assert tally(part, LIMITS, 1) == Tally(caught=1, slipped=3, wronged=0, harmless=2)
    assert (Tally().precision, Tally().recall) == (None, None)
    assert (Tally(1, 3, 1).precision, Tally(1, 3, 1).recall) == (0.5, 0.25)
    assert slipped(part, LIMITS, 0) == [part[2], part[6]]
    assert wronged(part, LIMITS, 0) == [(part[4], ["violence"])]


def test_thresholds_come_from_the_catalog(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text("moderation: {thresholds: {hate: [0.5]}}\n")
    assert thresholds(catalog) == Thresholds({"hate": (0.5,)})
    assert set(thresholds().by_category) == set(CATEGORIES)


def test_the_report_names_what_slipped_and_quotes_only_what_is_harmless() -> None:
    bad = Judged(Prompt("vi-1", "a secret text", "violence", until=2, spelling="leet", language="de"), {})
    good = Judged(Prompt("ok-1", "a harmless text"), {"violence": 0.8})
    text = markdown(JudgeSpec("lexicon"), [bad, good], thresholds())
    assert "- should have been refused at 0, 2: vi-1, violence (leet, de)\n" in text
    assert "- harmless, refused at 0 (violence), 2 (violence): “a harmless text”\n" in text
    assert "secret" not in text


def test_the_report_begins_with_the_second_author() -> None:
    second = Judged(Prompt("b-1", "a text", "violence", wording="slang", second_author=True), {"violence": 1.0})
    held_out = Judged(Prompt("vi-1", "another text", "violence", held_out=True), {"violence": 1.0})
    known = Judged(Prompt("vi-2", "a third text", "violence"), {"violence": 1.0})
    text = markdown(JudgeSpec("lexicon"), [known, held_out, second], thresholds())
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Prompts by a second author, who had not seen the lexicon",
        "## Held-out prompts, by the lexicon's author",
        "## Prompts that the lexicon was tuned on",
    ]
    assert text.count("\n1 prompts, 0 of them harmless.") == 3
    assert text.count("\n| slang |") == 1


def test_the_document_is_as_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "docs" / "evaluation.md"
    main(["--file", str(file)])
    assert file.read_text(encoding="utf-8") == capsys.readouterr().out.removesuffix("\n")
    assert file.read_text(encoding="utf-8") == _DOCUMENT.read_text(encoding="utf-8")
