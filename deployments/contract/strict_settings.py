"""Strict settings: the base of everything that is read from YAML; unknown keys are refused, with the nearest known."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

UNKNOWN_SETTING: Final = "unknown_setting"
"""The type of the error of a name that no setting has; its context has the `name`."""
_FEW: Final = 10
"""Names that an error lists."""


def check_names(values: Any, fields: Collection[str]) -> Any:
    """Returns `values`. Raises an error of the type UNKNOWN_SETTING for a name that none of `fields` has."""
    for name in values.keys() - set(fields) if isinstance(values, dict) else ():
        near = get_close_matches(str(name), fields, n=1)
        if near or len(fields) <= _FEW:
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}"
            raise PydanticCustomError(
                UNKNOWN_SETTING, "there is no setting {name}: {meant}", {"name": str(name), "meant": meant}
            )
    return values


class StrictSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, values: Any) -> Any:
        return check_names(values, cls.model_fields)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Takes what a release pickled that had fewer fields: these have their defaults."""
        values = state["__dict__"]
        missing = {name: field for name, field in type(self).model_fields.items() if name not in values}
        defaults = {name: field.get_default(call_default_factory=True) for name, field in missing.items()}
        super().__setstate__(state | {"__dict__": values | defaults})


@dataclass(frozen=True)
class Shape:
    """A pattern that a text must match, with the words for one that does not."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return handler(schema) | {"pattern": self.pattern}

    def _check(self, text: str) -> str:
        if re.search(self.pattern, text) is None:
            raise ValueError(self.words)
        return text


Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|(cuda|xpu)(:[0-9]+)?)$")]
"""A torch device; `auto` is a GPU where there is one."""

_ACTOR: Final = frozenset(
    ("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env", "label_selector")
)


def _check_actor(actor: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(actor) - _ACTOR):
        raise ValueError(f"unknown: {', '.join(unknown)}; expected some of {', '.join(sorted(_ACTOR))}")
    amounts = {name: actor.get(name) for name in ("num_cpus", "num_gpus", "memory")} | (actor.get("resources") or {})
    for name, amount in amounts.items():
        if amount is not None and (isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0):
            raise ValueError(f"{name} must be a number of at least 0, not {amount!r}")
    return actor


RayActorOptions = Annotated[dict[str, Any], AfterValidator(_check_actor)]
"""Ray's options of a replica's actor: what it takes of a node."""
