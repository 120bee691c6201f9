"""What clients wrote, as it is stored."""

from __future__ import annotations

import json

import pytest

from serve_app.sealing.at_rest import IN_CLEAR, AtRest
from serve_app.sealing.sealer import Unreadable, new_key
from serve_app.sealing.settings import SealingSettings
from serve_app.tasks.job import Job, NewerJob

TEXT = 'a "quoted" 鍵 {"v":1}'


@pytest.fixture
def key() -> str:
    return new_key()


def test_what_is_sealed_is_read_back_and_shows_nothing(key: str) -> None:
    at_rest = AtRest([key], sealing=True)
    assert "quoted" not in at_rest.seal(TEXT)
    assert at_rest.open(at_rest.seal(TEXT)) == TEXT


def test_both_kinds_are_read_whatever_the_setting_says(key: str) -> None:
    sealing, clear = AtRest([key], sealing=True), AtRest([key])
    assert clear.seal(TEXT) == TEXT
    assert clear.open(sealing.seal(TEXT)) == TEXT
    assert sealing.open(TEXT) == TEXT


def test_a_text_that_looks_sealed_is_no_riddle(key: str) -> None:
    """Whoever writes one must not have it taken for what the service sealed."""
    sealing, clear = AtRest([key], sealing=True), AtRest([key])
    forged = sealing.seal(TEXT)
    assert clear.open(clear.seal(forged)) == forged
    assert sealing.open(sealing.seal(forged)) == forged


def test_after_a_rotation_old_texts_are_read_and_the_new_key_seals(key: str) -> None:
    new = new_key()
    rotated = AtRest([new, key], sealing=True)
    assert rotated.open(AtRest([key], sealing=True).seal(TEXT)) == TEXT
    assert AtRest([new]).open(rotated.seal(TEXT)) == TEXT


@pytest.mark.parametrize("reader", [IN_CLEAR, AtRest([new_key()], sealing=True)], ids=["no key", "another key"])
def test_a_text_whose_key_is_gone_is_unreadable(reader: AtRest, key: str) -> None:
    with pytest.raises(Unreadable):
        reader.open(AtRest([key], sealing=True).seal(TEXT))


def test_equal_texts_have_one_name_that_tells_nothing_of_them(key: str) -> None:
    at_rest = AtRest([key], sealing=True)
    names = {
        at_rest.name("https://hooks.example.com:443"),
        AtRest([key, new_key()], sealing=True).name("https://hooks.example.com:443"),
    }
    assert len(names) == 1
    assert "example" not in names.pop()
    assert at_rest.name("a") != at_rest.name("b")
    assert at_rest.name("a") != AtRest([new_key()], sealing=True).name("a"), "nobody without the key can guess it"
    assert AtRest([key]).name("https://hooks.example.com:443") == "https://hooks.example.com:443"


def test_to_a_release_that_knows_nothing_of_it_a_sealed_job_is_one_of_a_later_release(key: str) -> None:
    with pytest.raises(NewerJob):
        Job.decode(AtRest([key], sealing=True).seal(json.dumps({"v": 1})))


def test_nothing_is_sealed_unless_it_is_asked_for() -> None:
    assert SealingSettings().at_rest is False
    assert SealingSettings().keys == []
