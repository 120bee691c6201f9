"""Sealed secrets and sealed texts of clients."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from serve_app.encryption import IN_CLEAR, AtRest, Sealer, SealingSettings, UnknownSealingKey, new_key
from serve_app.tasks.payload import NewerPayload, TaskPayload

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize("secret", [SECRET, "ключ 鍵 🔑", "s" * 512])
def test_sealing_hides_the_text_and_varies(secret: str) -> None:
    sealer = Sealer([new_key()])
    first, second = sealer.seal(secret), sealer.seal(secret)
    assert first != second
    for sealed in (first, second):
        assert sealer.open(sealed) == secret
        assert secret.encode() not in base64.urlsafe_b64decode(sealed)


def test_rotated_keys_open_old_secrets_and_seal_with_the_new() -> None:
    old, new = new_key(), new_key()
    before, during = Sealer([old]), Sealer([new, old])
    assert during.open(before.seal(SECRET)) == SECRET
    assert Sealer([new]).open(during.seal(SECRET)) == SECRET
    with pytest.raises(UnknownSealingKey):
        before.open(during.seal(SECRET))
    assert before.open_or_none(during.seal(SECRET)) is None


@pytest.mark.parametrize("change", [lambda s: s[:-4], lambda s: "", lambda s: s[:40] + s[41:], lambda s: SECRET])
def test_tampered_text_is_unreadable(change: Callable[[str], str]) -> None:
    sealer = Sealer([new_key()])
    with pytest.raises(UnknownSealingKey):
        sealer.open(change(sealer.seal(SECRET)))


@pytest.mark.parametrize(
    "key",
    ["", "correct horse battery staple", *(base64.urlsafe_b64encode(bytes(n)).decode() for n in (31, 33)), "ключ"],
    ids=["empty", "words", "31 bytes", "33 bytes", "not ASCII"],
)
def test_invalid_key_is_refused_and_not_shown(key: str) -> None:
    for keys in ([key], [new_key(), key]):
        with pytest.raises(ValueError, match="32 random bytes") as refusal:
            Sealer(keys)
        assert not key or key not in str(refusal.value)
        with pytest.raises(ValueError, match="32 random bytes"):
            SealingSettings.model_validate({"keys": keys})


TEXT = 'a "quoted" 鍵 {"v":1}'


@pytest.fixture
def key() -> str:
    return new_key()


def test_plain_and_sealed_texts_open_with_any_setting(key: str) -> None:
    sealing, clear = AtRest([key], sealing=True), AtRest([key])
    assert clear.seal(TEXT) == TEXT
    assert "quoted" not in sealing.seal(TEXT)
    assert sealing.open(sealing.seal(TEXT)) == TEXT
    assert clear.open(sealing.seal(TEXT)) == TEXT
    assert sealing.open(TEXT) == TEXT


def test_plain_text_that_looks_sealed_is_read_back(key: str) -> None:
    """A client must not be able to forge a sealed text."""
    sealing, clear = AtRest([key], sealing=True), AtRest([key])
    forged = sealing.seal(TEXT)
    assert clear.open(clear.seal(forged)) == forged
    assert sealing.open(sealing.seal(forged)) == forged


@pytest.mark.parametrize("reader", [IN_CLEAR, AtRest([new_key()], sealing=True)], ids=["no key", "another key"])
def test_text_with_a_missing_key_is_unreadable(reader: AtRest, key: str) -> None:
    with pytest.raises(UnknownSealingKey):
        reader.open(AtRest([key], sealing=True).seal(TEXT))


def test_equal_texts_have_one_opaque_name(key: str) -> None:
    at_rest = AtRest([key], sealing=True)
    name = at_rest.name("https://hooks.example.com:443")
    assert name == AtRest([key, new_key()], sealing=True).name("https://hooks.example.com:443")
    assert "example" not in name
    assert at_rest.name("a") != at_rest.name("b")
    assert at_rest.name("a") != AtRest([new_key()], sealing=True).name("a"), "a guess needs the key"
    assert AtRest([key]).name("https://hooks.example.com:443") == "https://hooks.example.com:443"


def test_older_release_takes_a_sealed_payload_for_a_later_one(key: str) -> None:
    with pytest.raises(NewerPayload):
        TaskPayload.decode(AtRest([key], sealing=True).seal(json.dumps({"v": 1})))
