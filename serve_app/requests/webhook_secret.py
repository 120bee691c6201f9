"""The secret that a request brings for its webhook: the key as it is, in UTF-8; after `whsec_` its base64 form."""

from __future__ import annotations

from typing import Final

import pybase64

PREFIX: Final = "whsec_"


def key_of(secret: str) -> bytes:
    """Raises ValueError for what goes on after `whsec_` in anything but base64."""
    if secret.startswith(PREFIX):
        return pybase64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()
