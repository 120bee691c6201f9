"""Strict settings: the base of everything that is read from YAML; unknown keys are refused, with the nearest known."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


class StrictSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _advise(cls, values: Any) -> Any:
        for name in values.keys() - cls.model_fields.keys() if isinstance(values, dict) else ():
            if near := get_close_matches(str(name), cls.model_fields, n=1):
                raise ValueError(f"there is no setting {name}: did you mean {near[0]}?")
        return values


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
