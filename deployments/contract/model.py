"""How a replica is to run its model: everything a model deployment gets from the service's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Precision: TypeAlias = Literal["auto", "float32", "bfloat16"]
Enlarge: TypeAlias = Literal["smooth", "sharp"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """`checkpoint` is a hub id, a folder, `bundled/<name>`, or `simulated/<n>ms`: no model, n ms a step. `attention`
    names backends, tried in order.

    Pictures are rendered with a shorter side of `render_side` pixels, whatever size was asked for, and scaled to it:
    for small models that know one size. None renders every picture at its size. `enlarge` `smooth` interpolates;
    `sharp` also makes edges crisp, which suits drawings and posterises photographs.
    `max_running` jobs are in the engine at a time, at most `max_batch` of them in one forward. A single forward that
    takes longer than `step_limit_s` counts as hung. `max_adapters` tuned models stay in memory beside those in use.
    `preview_every` is the share of the steps between two previews.
    """

    checkpoint: str
    objects_url: str
    revision: str | None = None
    device: str = "auto"
    dtype: Precision = "auto"
    attention: tuple[str, ...] = ("native",)
    compile: bool = False
    threads: int | None = None
    render_side: int | None = None
    enlarge: Enlarge = "smooth"
    preview_every: float | None = None
    max_running: int = 8
    max_batch: int = 8
    step_limit_s: float = 120.0
    max_adapters: int = 4
    objects_options: dict[str, Any] = field(default_factory=dict)
