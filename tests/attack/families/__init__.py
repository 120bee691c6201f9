"""Families of attacks, in the order they are made: those that may leave the service in disorder come last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from attack.attacks import Attack
from attack.families import json_bodies, permissions, pictures, schema, slow, tenants, urls, videos

Attacks: TypeAlias = Callable[[Path, int, int], Sequence[Attack]]
"""From the repository, a seed and a count to about as many attacks: the same seed and count make the same ones."""


@dataclass(frozen=True, slots=True)
class Family:
    attacks: Attacks
    share: float
    """Of all that is tried."""
    parallel: int


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "permissions": Family(permissions.attacks, 0.12, 8),
        "urls": Family(urls.attacks, 0.12, 1),  # so that whoever arrives where it must not is known
        "schema": Family(schema.attacks, 0.30, 4),
        "json": Family(json_bodies.attacks, 0.27, 4),
        "pictures": Family(pictures.attacks, 0.06, 4),
        "videos": Family(videos.attacks, 0.03, 4),
        "slow": Family(slow.attacks, 0.04, 5),
        "tenants": Family(tenants.attacks, 0.06, 1),
    }
)
