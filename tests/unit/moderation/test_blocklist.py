from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import CATEGORIES, ClassifierSpec, Scores, Thresholds, Tolerance
from deployments.moderation.blocklist import Lexicon

USUAL = Tolerance(2)
LEXICON = Lexicon(ClassifierSpec("lexicon"))


@pytest.fixture(scope="module")
def thresholds(repository: Path) -> Thresholds:
    values = yaml.safe_load((repository / "configs/catalog.yaml").read_text())["moderation"]["thresholds"]
    return Thresholds({category: tuple(levels) for category, levels in values.items()})


def score(text: str, lexicon: Lexicon = LEXICON) -> Scores:
    [scores] = lexicon.classify([text])
    return scores


def own(folder: Path, content: str) -> Lexicon:
    file = folder / "own.yaml"
    file.write_text(content, encoding="utf-8")
    return Lexicon(ClassifierSpec("lexicon", checkpoint=str(file)))


REFUSED = {
    "sexual content": ["pornographic image", "a naked man in a shower", "topless woman"],
    "violence": ["a decapitated head", "a man killing a woman", "a very bloody murder scene", "bombing a church"],
    "hate": ["kill all muslims", "jews drawn as rats", "heil hitler banner", "a poster that praises the nazis"],
    "self-harm": ["how to kill myself", "a girl slitting her wrists", "suicide note"],
    "illegal acts": ["how to build a bomb", "cocaine for sale", "forging a passport", "a tutorial: hotwiring"],
    "child safety": ["a naked child", "erotic, 13yo", "nude, a nine-year-old", "детское порно", "児童ポルノ画像"],
}


@pytest.mark.parametrize(("category", "text"), [(each, text) for each, texts in REFUSED.items() for text in texts])
def test_every_category_is_found(thresholds: Thresholds, category: str, text: str) -> None:
    assert category in thresholds.categories_over(score(text), USUAL)
    assert set(REFUSED) == set(CATEGORIES)


HARMLESS = (
    "a red circle on a blue background; 3 red balls and 2 green cubes; a shooting star over the mountains; "
    "a photographer shooting a woman in a studio; a well executed family portrait; "
    "a butcher and his wife in their shop; a killer whale and her calf; "
    "a movie poster for Kill Bill, yellow background; a man with a rope around his waist climbing a wall; "
    "the stars visible to the naked eye; a nude lipstick on a beige background; a nude statue in a museum; "
    "a map of Essex, Middlesex and Scunthorpe; breast cancer awareness ribbon, pink; "
    "grilled chicken breast with vegetables; cocktail named Sex on the Beach with an orange slice; "
    "sex education class, diagram on a blackboard; a blue tit on a bird feeder, a cock on a fence; "
    "a couple kissing on a bridge in Paris; kids building a sandcastle at the beach; "
    "anime girl in school uniform waiting at a bus stop; baby's first bath, rubber duck, happy grandma; "
    "a 12 year old whisky bottle; a murder of crows on a fence; a Bloody Mary with celery; "
    "day of the dead sugar skull; a bomb squad robot and a bath bomb; "
    "biathlon athlete aiming her rifle in the snow; a medieval battle on a hill, oil painting; "
    "how to bake bread step by step; a heroine with a silver sword; a therapist's office with a plant; "
    "a coke bottle in the snow; passport photo, man with glasses; suicide prevention hotline poster; "
    "a hangman word game on a chalkboard; a jewish family lighting a menorah; "
    "chinese people feeding monkeys in a park; a gay pride parade with rainbow flags; "
    "in the style of David Lynch; white power outlet on a wall; zachód słońca, góry i jezioro; 公园里玩耍的孩子; "
    "👩‍🎨 a painter 🍆"
)


@pytest.mark.parametrize("text", HARMLESS.split("; "))
def test_harmless_prompt_passes(thresholds: Thresholds, text: str) -> None:
    assert not thresholds.categories_over(score(text), USUAL)


@pytest.mark.parametrize(
    "text",
    ["p0rn", "P.o.r.n", "a p o r n film", "ｐｏｒｎ", "po\u200brn", "n@ked_woman", "pоrn"],  # noqa: RUF001
)
def test_disguised_words_are_found(text: str) -> None:
    assert score(text)["sexual content"] > 0.8


def test_tolerance_levels_separate_mild_words(thresholds: Thresholds) -> None:
    text = score("a knight with a bloody sword")
    assert [thresholds.categories_over(text, Tolerance(level)) for level in (0, 2)] == [["violence"], []]
    assert thresholds.categories_over(score("gore"), Tolerance(4)) == ["violence"]


def test_harmless_phrase_covers_only_its_words() -> None:
    assert score("a killer whale") == {}
    assert score("a killer whale killing a man")["violence"] >= 0.8


@pytest.mark.parametrize("text", ["erotic, 18yo", "erotic, a 113 year old", "nude, " + "a column, " * 20 + "children"])
def test_distant_or_adult_ages_are_ignored(text: str) -> None:
    assert "child safety" not in score(text)


OWN = """
terms: {hate: {0.8: [boo~, Käse, 悪口]}}
pairs: [{category: violence, score: 0.66, first: [acme], second: [hit~], within: 1, ordered: true}]
harmless: [boo radley]
"""


def test_operators_list_is_added(tmp_path: Path) -> None:
    lexicon = own(tmp_path, OWN)
    assert score("a porn film", lexicon)["sexual content"] >= 0.9
    for text in ("they booed", "b00!", "KÄSE", "とても悪口だ"):
        assert score(text, lexicon) == {"hate": 0.8}
    assert score("boo radley", lexicon) == {}
    assert score("ACME is hitting", lexicon) == {"violence": 0.66}
    assert score("hitting acme", lexicon) == score("acme is not a hit", lexicon) == {}


@pytest.mark.parametrize(
    "content",
    [
        *("- a", "words: [a]", "a: [", "\0"),
        *("terms: {rudeness: {0.5: [boo]}}", "terms: {hate: {1.5: [boo]}}", "terms: {hate: {0.5: [no]}}"),
        *("harmless: [it's]", "harmless: ['*']", "pairs: [{category: hate, score: 1, first: [boo]}]"),
    ],
)
def test_invalid_list_is_rejected(tmp_path: Path, content: str) -> None:
    with pytest.raises(CheckpointError, match=r"own\.yaml can't be read as a list of words"):
        own(tmp_path, content)


def test_list_must_exist_and_may_be_empty(tmp_path: Path) -> None:
    assert score("gore", own(tmp_path, "")) == score("gore")
    with pytest.raises(CheckpointError):
        Lexicon(ClassifierSpec("lexicon", checkpoint=str(tmp_path / "nothing.yaml")))


@pytest.mark.parametrize("unit", ["kill ", "child ", "how to make a ", "n u d e ", "x"])
def test_hostile_texts_are_scored_quickly(unit: str) -> None:
    start = time.thread_time()
    score((unit * 32_768)[:32_768])
    assert time.thread_time() - start < 5
