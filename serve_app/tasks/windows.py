"""Windows of a queue's recent time: counts and quantiles of the last five minutes, hour and day.

`windows.lua` counts in Redis, in one hash for each minute and one for each quarter of an hour. Times are kept in
buckets whose bounds grow by a tenth, so a quantile is right to within five percent. A window ends now and begins with a
period, so it is at most as long as its name says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

_GROWTH: Final = 1.1
"""Bound of a bucket over that of the one below, as in `windows.lua`."""
BUCKET_ERROR: Final = _GROWTH**0.5
"""Factor by which a quantile may be too large or too small."""
_PERIODS_S: Final = {"m": 60, "q": 900}
WINDOWS: Final = {"5m": ("m", 5), "1h": ("m", 60), "24h": ("q", 96)}
"""Period and number of periods of each window, by its name."""


@dataclass(frozen=True, slots=True)
class Window:
    """Counts of a span of `seconds`."""

    seconds: float = 1.0
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        return round(self.counts.get("accepted", 0))

    @property
    def ready(self) -> int:
        return round(self.counts.get(Status.READY, 0))

    @property
    def errors(self) -> int:
        """Number of failed tasks, without cancelled ones."""
        return round(self.counts.get(Status.ERROR, 0))

    @property
    def cancelled(self) -> int:
        return round(self.counts.get("cancelled", 0))

    @property
    def moderated(self) -> int:
        return round(sum(self.counts.get(status, 0) for status in (Status.REQUEST_MODERATED, Status.CONTENT_MODERATED)))

    @property
    def device_s(self) -> float:
        return self.counts.get("device_us", 0) / 1e6

    @property
    def task_device_s(self) -> float | None:
        """Mean device seconds of a task that was not cancelled; None if none ended."""
        ended = self.ready + self.errors + self.moderated
        return self.device_s / ended if ended else None

    @property
    def run_s(self) -> float | None:
        """Mean seconds from the first start of work to the result; None if no task became ready."""
        return self.counts.get("run_ms", 0) / 1000 / self.ready if self.ready else None

    @property
    def prediction_error(self) -> float | None:
        """Mean error of device seconds predicted from work, as a share of them; None without predictions."""
        predicted = self.counts.get("predicted_us", 0)
        return self.counts["error_us"] / predicted if predicted else None

    @property
    def pace(self) -> float | None:
        """Mean seconds that a unit of `ResolvedRequest.work` runs; None if no task became ready."""
        work = self.counts.get("work", 0)
        return self.counts["run_ms"] / 1000 / work if work else None

    def quantile(self, name: str, fraction: float) -> float | None:
        """Returns a quantile in seconds, None without data, of `wait` (submission to the first start of work), `run`
        (from there to the result) or `pace` (run for a unit of work)."""
        prefix = f"{name}:"
        buckets = sorted(
            (int(key.removeprefix(prefix)), count) for key, count in self.counts.items() if key.startswith(prefix)
        )
        total, below = sum(count for _, count in buckets), 0.0
        for bucket, count in buckets:
            below += count
            if below >= fraction * total:
                return _GROWTH ** (bucket - 0.5) / 1000
        return None


class WindowReader:
    """Reads windows; caches periods that are over."""

    def __init__(self, tasks: TaskStore) -> None:
        self._tasks = tasks
        self._closed: dict[tuple[str, str], dict[int, Mapping[str, float]]] = {}

    async def read(self, queue: str, window: str) -> Window:
        """Reads a window of WINDOWS. Raises RedisError."""
        period, count = WINDOWS[window]
        total = Counter[str]()
        for counts in await self.periods(queue, window):
            total.update(counts)
        elapsed_s = await self._tasks.reads.now() % _PERIODS_S[period]
        return Window((count - 1) * _PERIODS_S[period] + elapsed_s, dict(total))

    async def periods(self, queue: str, window: str) -> list[Mapping[str, float]]:
        """Returns the counts of each period of the window, oldest first. Raises RedisError."""
        period, count = WINDOWS[window]
        last = int(await self._tasks.reads.now() // _PERIODS_S[period])
        numbers = range(last - count + 1, last + 1)
        closed = self._closed.setdefault((queue, period), {})
        missing = [number for number in numbers if number not in closed]
        known = closed | dict(zip(missing, await self._tasks.reads.recent_counts(queue, period, missing), strict=True))
        kept = max(count for each, count in WINDOWS.values() if each == period)
        self._closed[queue, period] = {n: counts for n, counts in known.items() if last - kept < n < last}
        return [known[number] for number in numbers]
