"""A file as it comes from a client, written to disk: within a size, within a time, and never too slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serve_app.finetunes.refusals import Refused, TooSlow

GRACE_S: Final = 10.0
"""How long an upload may be slower than it must be, at its beginning and in all."""


@dataclass(frozen=True, slots=True)
class Bounds:
    max_mb: int
    """MiB."""
    receive_s: float
    """For the whole file."""
    min_kb_per_s: float
    """KiB per second, from the beginning to any moment."""

    def time_for(self, size: int) -> float:
        """When more than `size` bytes must have come, in seconds after the beginning."""
        return min(self.receive_s, GRACE_S + size / (self.min_kb_per_s * 1024))


async def save(chunks: AsyncIterator[bytes], file: Path, bounds: Bounds) -> int:
    """Writes what comes, in a thread. Returns how much. Raises Refused or TooSlow."""
    began = asyncio.get_running_loop().time()
    size = 0
    try:
        async with asyncio.timeout_at(began + bounds.time_for(0)) as patience:
            with await asyncio.to_thread(file.open, "wb") as target:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > bounds.max_mb * 2**20:
                        raise Refused(f"a tuned model may have at most {bounds.max_mb} MiB")
                    await asyncio.to_thread(target.write, chunk)
                    patience.reschedule(began + bounds.time_for(size))
    except TimeoutError:
        raise TooSlow(
            "The upload came too slowly: "
            f"it must be whole within {bounds.receive_s:g} s, and come at {bounds.min_kb_per_s:g} KiB/s or more"
        ) from None
    if size == 0:
        raise Refused("the body is empty: send the safetensors file itself")
    return size
