"""Strict settings: the base of all models that are read from YAML. Unknown keys are refused with the nearest known one.

Attribute docstrings describe the settings: `configs/local.yaml`, the table of `docs/settings.md` and the JSON Schema
are written from them.
"""

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
"""The type of the error for an unknown name; its context holds the `name`."""
_MAX_LISTED_NAMES: Final = 10
"""Largest number of names that an error lists."""


def check_names(values: Any, fields: Collection[str]) -> Any:
    """Returns `values`. Raises an error of the type UNKNOWN_SETTING for a name that is not in `fields`."""
    for name in values.keys() - set(fields) if isinstance(values, dict) else ():
        near = get_close_matches(str(name), fields, n=1)
        if near or len(fields) <= _MAX_LISTED_NAMES:
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
        """Accepts the pickle of a release with fewer fields; the missing ones get their defaults."""
        values = state["__dict__"]
        missing = {name: field for name, field in type(self).model_fields.items() if name not in values}
        defaults = {name: field.get_default(call_default_factory=True) for name, field in missing.items()}
        super().__setstate__(state | {"__dict__": values | defaults})


@dataclass(frozen=True)
class Shape:
    """A pattern that a text must match."""

    pattern: str
    message: str
    """Error message for a text that does not match."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return handler(schema) | {"pattern": self.pattern}

    def _check(self, text: str) -> str:
        if re.search(self.pattern, text) is None:
            raise ValueError(self.message)
        return text


@dataclass(frozen=True)
class NoRestart:
    """Marks a setting that Ray Serve or the launcher reads: a change restarts no replica."""


NO_RESTART: Final = NoRestart()

Device = Annotated[
    str,
    Field(
        pattern=r"^(auto|cpu|mps|(cuda|xpu)(:[0-9]+)?)$",
        description="Torch device: cpu, mps, cuda, xpu or cuda:N. auto: a GPU if there is one.",
    ),
]

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


RayActorOptions = Annotated[
    dict[str, Any],
    AfterValidator(_check_actor),
    Field(description="Ray resources of a replica, as {num_cpus: 1, num_gpus: 0.5}."),
    NO_RESTART,
]
MaxReplicasPerNode = Annotated[
    int | None,
    Field(
        ge=1, le=100, description="Maximum number of replicas on one node; 1 spreads them over nodes. null: any number."
    ),
    NO_RESTART,
]
Threads = Annotated[
    int | None,
    Field(ge=1, description="CPU threads of a call. null: all cores. Small models are often faster with 1."),
]
