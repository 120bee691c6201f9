"""What every peer's process is told by its environment: the same model, threads and batch as the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

_PREFIX = "PEER_"


@dataclass(frozen=True, slots=True)
class PeerSettings:
    checkpoint: str
    threads: int
    """Of torch, in the process that holds the model."""
    max_batch: int
    """Pictures of one forward at most, where a peer batches."""
    batch_wait_s: float
    """How long such a peer waits for a batch to fill. Ray Serve's default, for all that have the setting."""
    folder: str
    """For pictures, where a peer answers with files."""
    port: int
    redis_url: str = ""

    def as_environment(self) -> dict[str, str]:
        return {f"{_PREFIX}{name.upper()}": str(value) for name, value in asdict(self).items()}

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Raises KeyError, naming the variable that is missing."""

        def of(name: str) -> str:
            return environment[f"{_PREFIX}{name}"]

        return cls(
            checkpoint=of("CHECKPOINT"),
            threads=int(of("THREADS")),
            max_batch=int(of("MAX_BATCH")),
            batch_wait_s=float(of("BATCH_WAIT_S")),
            folder=of("FOLDER"),
            port=int(of("PORT")),
            redis_url=of("REDIS_URL"),
        )
