"""What is sealed at rest, and with which keys."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, SecretStr

from serve_app.sealing.sealer import Sealer
from serve_app.section import Section


def _usable(key: SecretStr) -> SecretStr:
    Sealer([key.get_secret_value()])
    return key


Key: TypeAlias = Annotated[SecretStr, AfterValidator(_usable)]


class SealingSettings(Section):
    at_rest: bool = False
    keys: list[Key] = []
