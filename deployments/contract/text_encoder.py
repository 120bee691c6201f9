"""How a replica is to run the text encoders that several models have in common."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.contract.model import Precision
from deployments.telemetry.logs import USUAL_LOGS, LogSpec


@dataclass(frozen=True, slots=True)
class TextEncoderSpec:
    """`checkpoint` is a pipeline's, as in ModelSpec, of which only tokenizers and text encoders are loaded. Up to
    `max_batch` prompts go through them together."""

    checkpoint: str
    revision: str | None = None
    device: str = "auto"
    dtype: Precision = "auto"
    threads: int | None = None
    max_batch: int = 8
    logs: LogSpec = USUAL_LOGS
