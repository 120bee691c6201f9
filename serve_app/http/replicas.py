"""How the ingress asks what replicas there are; who answers is not for it to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

Replicas: TypeAlias = Mapping[str, dict[str, int]]
"""Of each deployment, how many there are by their state."""
AskReplicas: TypeAlias = Callable[[], Awaitable[Replicas]]


async def unknown_replicas() -> Replicas:
    return {}
