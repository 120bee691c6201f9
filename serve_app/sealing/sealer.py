"""Encryption by the service's own keys: a copy of the database alone tells and signs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


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

    def open(self, sealed: str) -> str:
        """Raises Unreadable."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken:
            raise Unreadable from None

    def opened(self, sealed: str) -> str | None:
        """None where `open` raises: for what can be made anew."""
        try:
            return self.open(sealed)
        except Unreadable:
            return None


def new_key() -> str:
    return Fernet.generate_key().decode()
