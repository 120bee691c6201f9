"""Schedule of previews; `families/previews.py` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.backend import S
from deployments.engine.requests import ActiveRequest, Milestone


@dataclass(frozen=True, slots=True)
class PreviewSchedule:
    every: float | None
    """Share of the steps between two previews, in (0, 1]; None for no previews."""
    interval_s: float = 0.0
    """Seconds between two previews of a job at least, and between its admission and the first."""

    def is_due(self, request: ActiveRequest[S], now: float) -> bool:
        """Returns whether to make a preview now. `now`: seconds of the engine's clock."""
        if self.every is None or request.handle.ended or request.previewing:
            return False
        since = request.handle.reached[Milestone.ADMITTED] if request.previewed_at is None else request.previewed_at
        last = max(request.previews, default=0)
        state = request.state
        return now - since >= self.interval_s and passes_share(state.done_steps, state.total_steps, self.every, last)


def passes_share(done: int, total: int, every: float, last: int) -> bool:
    """Returns whether a multiple of `every` lies between step `last` and step `done` of `total`. False after the last
    step, as the result is next.
    """
    # The addend keeps 3 of 10 steps at `every=0.1` from counting as 2.9999 shares.
    return done < total and int(done / total / every + 1e-9) > int(last / total / every + 1e-9)
