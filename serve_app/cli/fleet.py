"""What a service says of its lanes to whoever shows an operator's key."""

from __future__ import annotations

from typing import Any, Final

import httpx2

_TIMEOUT_S: Final = 10
_PATH: Final = "/v1/admin/fleet"


def read(base_url: str, key: str) -> dict[str, dict[str, Any]] | None:
    """By lane, as `/v1/admin/fleet` answers; None where the key is no operator's, or there is no answer."""
    try:
        answer = httpx2.get(
            f"{base_url.rstrip('/')}{_PATH}", headers={"x-key": key}, timeout=_TIMEOUT_S, trust_env=False
        )
        answer.raise_for_status()
        return {lane.pop("lane"): lane for lane in answer.json()["lanes"]}
    except (httpx2.HTTPError, ValueError, KeyError):
        return None
