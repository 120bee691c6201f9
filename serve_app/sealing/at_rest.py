"""What clients wrote, as it is stored: sealed where the settings say so, and read either way.

A sealed text carries its mark, so that a store may hold both kinds, before and after the setting is changed. The mark
makes a sealed job look like one of a much later release: a release that knows nothing of sealing gives it back.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from serve_app.sealing.sealer import Sealer, Unreadable

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

    def open(self, stored: str) -> str:
        """Raises Unreadable."""
        if not stored.startswith(_HEAD):
            return stored
        if self._sealer is None:
            raise Unreadable
        return self._sealer.open(stored.removeprefix(_HEAD).removesuffix(_TAIL))

    def name(self, text: str) -> str:
        """What stands for a text where equal ones must be known: itself, or where it is sealed, its keyed hash."""
        if not self._sealing:
            return text
        return f"sealed-{hmac.digest(self._names, text.encode(), hashlib.sha256)[:_NAME_BYTES].hex()}"


IN_CLEAR: Final = AtRest()
"""Seals nothing, and opens nothing that is sealed."""
