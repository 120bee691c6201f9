"""Texts that are sealed with the service's own keys."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from serve_app.sealing.sealer import Sealer, Unreadable, new_key
from serve_app.sealing.settings import SealingSettings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize("secret", [SECRET, "x", "ключ 鍵 🔑", "s" * 512])
def test_a_secret_is_read_back_as_it_was(secret: str) -> None:
    sealer = Sealer([new_key()])
    assert sealer.open(sealer.seal(secret)) == secret


def test_what_is_sealed_shows_nothing_and_never_looks_the_same() -> None:
    sealer = Sealer([new_key()])
    first, second = sealer.seal(SECRET), sealer.seal(SECRET)
    assert first != second
    for sealed in (first, second):
        assert SECRET not in sealed
        assert SECRET.encode() not in base64.urlsafe_b64decode(sealed)


def test_after_a_rotation_the_old_secrets_are_read_and_the_new_key_seals() -> None:
    old, new = new_key(), new_key()
    before, during = Sealer([old]), Sealer([new, old])
    assert during.open(before.seal(SECRET)) == SECRET
    assert Sealer([new]).open(during.seal(SECRET)) == SECRET
    with pytest.raises(Unreadable):
        before.open(during.seal(SECRET))


def test_a_secret_of_a_key_that_is_gone_is_unreadable() -> None:
    sealed = Sealer([new_key()]).seal(SECRET)
    with pytest.raises(Unreadable):
        Sealer([new_key(), new_key()]).open(sealed)
    assert Sealer([new_key()]).opened(sealed) is None


@pytest.mark.parametrize("change", [lambda s: s[:-4], lambda s: "", lambda s: s[:40] + s[41:], lambda s: SECRET])
def test_what_was_tampered_with_is_unreadable(change: Callable[[str], str]) -> None:
    sealer = Sealer([new_key()])
    with pytest.raises(Unreadable):
        sealer.open(change(sealer.seal(SECRET)))


NO_KEYS = {
    "empty": "",
    "words": "correct horse battery staple",
    "short": base64.urlsafe_b64encode(bytes(31)).decode(),
    "long": base64.urlsafe_b64encode(bytes(33)).decode(),
    "not-ascii": "ключ",
}


@pytest.mark.parametrize("key", NO_KEYS.values(), ids=NO_KEYS)
def test_what_is_no_key_is_refused_without_being_shown(key: str) -> None:
    for keys in ([key], [new_key(), key]):
        with pytest.raises(ValueError, match="32 random bytes") as refusal:
            Sealer(keys)
        assert not key or key not in str(refusal.value)
        with pytest.raises(ValueError, match="32 random bytes"):
            SealingSettings.model_validate({"keys": keys})


def test_every_new_key_is_another_and_a_key() -> None:
    keys = {new_key() for _ in range(10)}
    assert len(keys) == 10
    Sealer(sorted(keys))
