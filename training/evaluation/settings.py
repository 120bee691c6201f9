"""How the service runs each bundled checkpoint: `configs/local.yaml`, and what requests have where they say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import yaml

from deployments.contract.model import Enlarge

_CONFIGS: Final = Path(__file__).parents[2] / "configs"


@dataclass(frozen=True, slots=True)
class Request:
    """What a request to the checkpoint's endpoint has by default; None: the model's own."""

    steps: int | None = None
    guidance: float | None = None
    interval: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """What a job gets, and what it runs on. `render_side` and `enlarge` as in ModelSpec."""

    steps: int
    guidance: float | None
    guidance_interval: float | None
    render_side: int | None
    enlarge: Enlarge
    max_running: int
    max_batch: int


REQUESTS: Final[Mapping[str, Request]] = MappingProxyType(
    {
        "flux3": Request(steps=16),
        "flux2klein": Request(),
        "flux": Request(steps=40, guidance=2.5, interval=2),
        "kontext": Request(),
        "fill": Request(steps=50, guidance=60),
        "canny": Request(steps=50, guidance=30),
    }
)
"""By checkpoint, of the forms image-klein, gen2-max, pro, kontext, fill and canny."""


def service_of(checkpoint: str) -> Service:
    """Raises ValueError for a checkpoint that no model of `configs/local.yaml` runs."""
    models: dict[str, Any] = yaml.safe_load((_CONFIGS / "local.yaml").read_text())["models"]
    model = next((m for m in models.values() if m.get("checkpoint") == f"bundled/{checkpoint}"), None)
    if model is None or checkpoint not in REQUESTS:
        raise ValueError(f"configs/local.yaml runs no bundled/{checkpoint}; there are: {', '.join(REQUESTS)}")
    request = REQUESTS[checkpoint]
    steps, guidance = request.steps or model.get("steps"), request.guidance
    if steps is None:
        raise ValueError(f"neither requests nor configs/local.yaml say the steps of bundled/{checkpoint}")
    return Service(
        steps=steps,
        guidance=model.get("guidance") if guidance is None else guidance,
        guidance_interval=request.interval,
        render_side=model.get("render_side"),
        enlarge=cast(Enlarge, model.get("enlarge", "smooth")),
        max_running=model.get("max_running", 8),
        max_batch=model.get("max_batch", 8),
    )
