"""Encryption of client data at rest.

A sealed text carries a mark, so a store may hold sealed and plain texts, and the setting may change at any time. The
mark makes a sealed payload look like one of a much later release: a release without sealing returns it to the queue.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from pydantic import AfterValidator, SecretStr

from deployments.contract.strict_settings import StrictSettings

_HEAD: Final = '{"v":1000000,"sealed":"'
_TAIL: Final = '"}'
_NAMES: Final = b"gen-serve names"
"""Context that separates the key for names from the key for texts."""
_NAME_BYTES: Final = 16


class AtRest:
    def __init__(self, keys: Sequence[str] = (), *, sealing: bool = False) -> None:
        """`sealing` uses the first of `keys`; all of them open. Raises ValueError for an invalid key."""
        self._sealer = Sealer(keys) if keys else None
        self._sealing = sealing and self._sealer is not None
        self._names = hmac.digest(keys[0].encode(), _NAMES, hashlib.sha256) if keys else b""

    def seal(self, text: str) -> str:
        # A plain text that begins like a sealed one is sealed too: `open` could not tell them apart.
        if self._sealer is None or not (self._sealing or text.startswith(_HEAD)):
            return text
        return f"{_HEAD}{self._sealer.seal(text)}{_TAIL}"

    def open(self, text: str) -> str:
        """Raises UnknownSealingKey."""
        if not text.startswith(_HEAD):
            return text
        if self._sealer is None:
            raise UnknownSealingKey
        return self._sealer.open(text.removeprefix(_HEAD).removesuffix(_TAIL))

    def name(self, text: str) -> str:
        """Returns an identifier that is equal for equal texts: the text itself, or with sealing its keyed hash."""
        if not self._sealing:
            return text
        return f"sealed-{hmac.digest(self._names, text.encode(), hashlib.sha256)[:_NAME_BYTES].hex()}"


IN_CLEAR: Final = AtRest()
"""Codec without keys: it seals nothing and opens plain texts only."""


class UnknownSealingKey(Exception):
    """The text is sealed with an unknown key."""


class Sealer:
    def __init__(self, keys: Sequence[str]) -> None:
        """Seals with the first of `keys` and opens with all. Raises ValueError unless each is 32 bytes in URL-safe
        base64."""
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise ValueError("every key must be 32 random bytes in URL-safe base64") from None

    def seal(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, token: str) -> str:
        """Raises UnknownSealingKey."""
        try:
            return self._fernet.decrypt(token).decode()
        except InvalidToken:
            raise UnknownSealingKey from None

    def open_or_none(self, token: str) -> str | None:
        """Returns None for a text that can't be opened."""
        try:
            return self.open(token)
        except UnknownSealingKey:
            return None


def new_key() -> str:
    return Fernet.generate_key().decode()


def _check_key(key: SecretStr) -> SecretStr:
    Sealer([key.get_secret_value()])
    return key


Key: TypeAlias = Annotated[SecretStr, AfterValidator(_check_key)]


class SealingSettings(StrictSettings):
    at_rest: bool = False
    """Encrypt prompts, other request fields, user ids, webhook addresses and more in Redis. Can be changed at any time;
    releases without sealing can't read sealed data."""
    keys: list[Key] = []
    """32 random bytes each in URL-safe base64 (gen-serve webhooks new-key), also for webhook secrets. The first
    encrypts, all decrypt. Data of a removed key is lost. Empty: made at first start, in <data_dir>/sealing-key."""
