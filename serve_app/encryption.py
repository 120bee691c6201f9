"""Encryption at rest of what clients wrote, where the settings ask for it.

A sealed text carries its mark, so that a store may hold both kinds, before and after the setting is changed. The mark
makes a sealed job look like one of a much later release: a release that knows nothing of sealing gives it back.
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
"""Keeps the key of names apart from the one that seals."""
_NAME_BYTES: Final = 16


class AtRest:
    def __init__(self, keys: Sequence[str] = (), *, sealing: bool = False) -> None:
        """The first of `keys` seals, if there is to be any `sealing`; all open. Raises ValueError as Sealer does."""
        self._sealer = Sealer(keys) if keys else None
        self._sealing = sealing and self._sealer is not None
        self._names = hmac.digest(keys[0].encode(), _NAMES, hashlib.sha256) if keys else b""

    def seal(self, text: str) -> str:
        # A text in clear that looked sealed would be taken for one.
        if self._sealer is None or not (self._sealing or text.startswith(_HEAD)):
            return text
        return f"{_HEAD}{self._sealer.seal(text)}{_TAIL}"

    def open(self, text: str) -> str:
        """Raises Unreadable."""
        if not text.startswith(_HEAD):
            return text
        if self._sealer is None:
            raise Unreadable
        return self._sealer.open(text.removeprefix(_HEAD).removesuffix(_TAIL))

    def name(self, text: str) -> str:
        """What stands for a text where equal ones must be known: itself, or where it is sealed, its keyed hash."""
        if not self._sealing:
            return text
        return f"sealed-{hmac.digest(self._names, text.encode(), hashlib.sha256)[:_NAME_BYTES].hex()}"


IN_CLEAR: Final = AtRest()
"""Seals nothing, and opens nothing that is sealed."""


class Unreadable(Exception):
    """The text was sealed with a key that is no longer known."""


class Sealer:
    def __init__(self, keys: Sequence[str]) -> None:
        """The first of `keys` seals, all open. Raises ValueError unless each is 32 bytes in URL-safe base64."""
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise ValueError("every key must be 32 random bytes in URL-safe base64") from None

    def seal(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, token: str) -> str:
        """Raises Unreadable."""
        try:
            return self._fernet.decrypt(token).decode()
        except InvalidToken:
            raise Unreadable from None

    def open_or_none(self, token: str) -> str | None:
        """None where `open` raises: for what can be made anew."""
        try:
            return self.open(token)
        except Unreadable:
            return None


def new_key() -> str:
    return Fernet.generate_key().decode()


def _usable(key: SecretStr) -> SecretStr:
    Sealer([key.get_secret_value()])
    return key


Key: TypeAlias = Annotated[SecretStr, AfterValidator(_usable)]


class SealingSettings(StrictSettings):
    at_rest: bool = False
    keys: list[Key] = []
