"""What a run is to do, before it is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from serve_app.load import trace
from serve_app.load.arrivals import Arrivals, schedule
from serve_app.load.figures import Window
from serve_app.load.mix import Mix
from serve_app.load.request import Request
from serve_app.load.trace import Arrival


class NothingSent(ValueError):
    """At this rate no request would fall into the time that counts."""


@dataclass(frozen=True, slots=True)
class Settings:
    """As they stand in a summary. Times in seconds, rates per second."""

    adapter: str
    source: str
    """What was sent, for people."""
    digest: str
    """Of what was sent: two runs with the same one sent the same mix, or the same trace."""
    duration: float
    """Of the arrivals that count."""
    warm_up: float
    """Of those before them."""
    seed: int
    arrivals: str
    rate: float
    """The mean of all arrivals."""
    peak: float | None = None
    period: float | None = None
    speed: float | None = None

    @property
    def work(self) -> dict[str, Any]:
        """What has to be the same in two runs that are compared."""
        names = ("adapter", "digest", "arrivals", "rate", "peak", "period", "speed")
        return {name: value for name, value in asdict(self).items() if name in names}


@dataclass(frozen=True, slots=True)
class Plan:
    settings: Settings
    requests: Sequence[Request]
    weights: Mapping[str, float]
    """What tenants are entitled to, against each other."""

    @property
    def window(self) -> Window:
        return Window(self.settings.warm_up, self.settings.warm_up + self.settings.duration)


@dataclass(frozen=True, slots=True)
class Load:
    """A mix that comes by a pattern; at which rate is still open."""

    mix: Mix
    source: str
    adapter: str
    arrivals: Arrivals
    duration: float
    warm_up: float
    peak: float | None = None
    period: float = 60.0

    def lasting(self, duration: float) -> Self:
        return replace(self, duration=duration)

    def at(self, rate: float, seed: int) -> Plan:
        """Raises ValueError for a rate, peak or period that can't be, or at which nothing would be sent."""
        moments = schedule(self.arrivals, rate, self.warm_up + self.duration, seed, peak=self.peak, period=self.period)
        if not any(moment >= self.warm_up for moment in moments):
            raise NothingSent(f"{rate:g} requests per second for {self.duration:g} s are no request at all")
        swings = self.arrivals in ("bursts", "diurnal")
        settings = Settings(
            adapter=self.adapter,
            source=self.source,
            digest=digest_of(self.mix),
            duration=self.duration,
            warm_up=self.warm_up,
            seed=seed,
            arrivals=self.arrivals,
            rate=rate,
            peak=self.peak if swings else None,
            period=self.period if swings else None,
        )
        return Plan(settings, self.mix.requests(moments, seed), weights_of(self.mix))


def replayed(
    arrivals: Sequence[Arrival], mix: Mix, source: str, adapter: str, *, speed: float, warm_up: float, seed: int
) -> Plan:
    """Raises ValueError where the warm-up is all of it."""
    requests = trace.requests(arrivals, mix, speed, seed)
    # The last request has a time of its own, too: the mean gap.
    length = requests[-1].moment * len(requests) / max(1, len(requests) - 1) or 1.0
    if warm_up > requests[-1].moment:
        raise ValueError(f"a warm-up of {warm_up:g} s leaves nothing of a trace of {length:.1f} s")
    numbered = {trace.tenant_name(mix, each.tenant): 1.0 for each in arrivals}
    named = {tenant.name: tenant.weight for tenant in mix.tenants}
    told = "".join(each.model_dump_json() for each in arrivals)
    settings = Settings(
        adapter=adapter,
        source=source,
        digest=_digest(told + digest_of(mix)),
        duration=length - warm_up,
        warm_up=warm_up,
        seed=seed,
        arrivals="recorded",
        rate=round(len(requests) / length, 4),
        speed=speed,
    )
    return Plan(settings, requests, {name: named.get(name, weight) for name, weight in numbered.items()})


def weights_of(mix: Mix) -> dict[str, float]:
    return {tenant.name: tenant.weight for tenant in mix.tenants}


def digest_of(mix: Mix) -> str:
    """Where keys are kept makes no difference to what is sent."""
    told = mix.model_dump(mode="json")
    for tenant in told["tenants"]:
        del tenant["key_env"], tenant["key_file"]
    return _digest(json.dumps(told, sort_keys=True))


def _digest(told: str) -> str:
    return hashlib.sha256(told.encode()).hexdigest()[:16]
