"""Base of settings sections: unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|(cuda|xpu)(:[0-9]+)?)$")]
"""A torch device; `auto` is a GPU where there is one."""

_ACTOR: Final = frozenset(
    ("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env", "label_selector")
)


def _known_options(actor: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(actor) - _ACTOR):
        raise ValueError(f"unknown: {', '.join(unknown)}; expected some of {', '.join(sorted(_ACTOR))}")
    amounts = {name: actor.get(name) for name in ("num_cpus", "num_gpus", "memory")} | (actor.get("resources") or {})
    for name, amount in amounts.items():
        if amount is not None and (isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0):
            raise ValueError(f"{name} must be a number of at least 0, not {amount!r}")
    return actor


Actor = Annotated[dict[str, Any], AfterValidator(_known_options)]
"""Ray's options of a replica's actor: what it takes of a node."""
