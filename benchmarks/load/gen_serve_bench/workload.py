"""Workloads: requests and their schedule, from a mix of endpoints and tenants, or from a recorded trace."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product, takewhile
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

Pattern: TypeAlias = Literal["poisson", "constant", "bursts", "diurnal"]
PATTERNS: Final[tuple[Pattern, ...]] = get_args(Pattern)

_PEAKS: Final = {"poisson": 1.0, "constant": 1.0, "bursts": 4.0, "diurnal": 1.8}
"""Default peak of each pattern, relative to the mean rate."""
_POOL: Final = 1000
"""Requests that a closed loop of unknown length repeats, each time with other seeds."""
_MAX_SEED: Final = 2**31
_COLOURS: Final = ("red", "green", "blue", "yellow", "orange", "white", "black", "cyan")
_OBJECTS: Final = ("star", "circle", "square", "triangle", "diamond", "heart")


class Size(NamedTuple):
    """Size in pixels."""

    width: int
    height: int

    @classmethod
    def parse(cls, text: object) -> Self:
        """Parses `512x768`. Raises ValueError."""
        width, sign, height = str(text).lower().partition("x")
        if not sign or not (width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
            raise ValueError(f"a size is written WIDTHxHEIGHT in pixels, like 1024x768, not {text!r}")
        size = cls(int(width), int(height))
        if 0 in size:
            raise ValueError(f"a size has at least one pixel each way, not {text!r}")
        return size

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


_REFERENCE: Final = Size(512, 512)


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a request that determine its cost. None leaves the choice to the server."""

    size: Size | None = None
    steps: int | None = None
    references: int = 0
    """Number of images to send."""
    seconds: int | None = None
    """Seconds of video."""
    tuned: bool = False
    """True for a tuned model (LoRA)."""

    @property
    def work(self) -> float | None:
        """Megapixel-steps, where a second of video counts as an image; None if the server chooses size or steps."""
        if self.size is None or self.steps is None:
            return None
        return self.size.width * self.size.height / 1e6 * self.steps * (self.seconds or 1)

    def __str__(self) -> str:
        parts = (
            str(self.size) if self.size else "",
            f"{self.steps} steps" if self.steps is not None else "",
            f"{self.references} image{'s' if self.references > 1 else ''} sent" if self.references else "",
            f"{self.seconds} s" if self.seconds is not None else "",
            "tuned" if self.tuned else "",
        )
        return ", ".join(filter(None, parts)) or "as the server chooses"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Request of a plan, made before the run starts."""

    number: int
    moment: float
    """Scheduled time in seconds after the start; a closed loop sends it once a slot is free."""
    endpoint: str
    shape: Shape
    tenant: str
    prompt: str
    seed: int
    reference_size: Size = _REFERENCE
    body: Mapping[str, Any] = field(default_factory=dict)
    """Extra fields of the body."""

    @property
    def kind(self) -> str:
        """Endpoint and shape: requests of one kind cost the same."""
        return f"{self.endpoint}, {self.shape}"


def schedule(
    pattern: Pattern, rate: float, duration: float, seed: int = 0, *, peak: float | None = None, period: float = 60.0
) -> list[float]:
    """Returns rising arrival times in seconds after the start, all below `duration`. `rate` is the mean per second.

    `constant` arrivals are evenly spaced and start at once. `poisson` arrivals are independent, like those of many
    clients. `bursts` come at `peak` times the mean rate at the beginning of each `period`, with none in between.
    `diurnal` arrivals rise and fall like a day of length `period`, up to `peak` times the mean.

    Raises ValueError for an invalid pattern.
    """
    if pattern not in PATTERNS:
        raise ValueError(f"--arrivals should be one of {', '.join(PATTERNS)}, not {pattern!r}")
    if not 0 < rate < math.inf:
        raise ValueError(f"the rate should be a number of requests per second above 0, not {rate}")
    if not 0 < period < math.inf:
        raise ValueError(f"the period should be a number of seconds above 0, not {period}")
    if peak is not None and pattern not in ("bursts", "diurnal"):
        raise ValueError(f"{pattern} arrivals have no peak; only bursts and diurnal arrivals have one")
    if peak is not None and not 1 < peak <= (2 if pattern == "diurnal" else 1e6):
        raise ValueError(f"the peak should be above 1 times the mean rate, of diurnal arrivals at most 2, not {peak}")
    if pattern == "constant":
        return [n / rate for n in range(round(rate * duration))]
    rng, max_rate = random.Random(seed), peak or _PEAKS[pattern]
    gaps = iter(lambda: rng.expovariate(rate * max_rate), None)
    moments = takewhile(lambda moment: moment < duration, accumulate(gaps))
    if pattern == "poisson":
        return list(moments)
    # Thinning (Lewis and Shedler 1979): keeps arrivals at the peak rate with the probability of their own moment.
    return [at for at in moments if rng.random() * max_rate < _relative_rate(pattern, max_rate, at / period % 1)]


def _relative_rate(pattern: Pattern, peak: float, phase: float) -> float:
    if pattern == "bursts":
        return peak if phase < 1 / peak else 0.0
    return 1 - (peak - 1) * math.cos(2 * math.pi * phase)


SizeText = Annotated[Size, BeforeValidator(Size.parse), PlainSerializer(str)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeastOne = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Endpoint(_Section):
    """Endpoint of a mix. Each request draws one of `sizes`, `steps` and `seconds`; an empty list leaves it open."""

    endpoint: str = Field(min_length=1)
    """Name without `/v1/`; the model with the OpenAI adapter."""
    weight: Weight = 1
    sizes: list[SizeText] = []
    steps: list[AtLeastOne] = []
    """Steps to send if the endpoint takes them; they always count as work."""
    references: int = Field(default=0, ge=0, le=16)
    reference_size: SizeText = _REFERENCE
    seconds: list[AtLeastOne] = []
    body: dict[str, Any] = {}

    def shapes(self) -> list[Shape]:
        choices = product(self.sizes or [None], self.steps or [None], self.seconds or [None])
        tuned = "finetune_id" in self.body
        return [Shape(size, steps, self.references, seconds, tuned) for size, steps, seconds in choices]


class Tenant(_Section):
    """Tenant of a mix, with the API key of its requests."""

    name: str = Field(min_length=1)
    traffic: Weight = 1
    """Share of the requests, relative to other tenants."""
    weight: Weight = 1
    """Share of the server that it is entitled to, relative to other tenants, for the fairness index."""
    key_env: str | None = None
    key_file: Path | None = None

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key_env is not None and self.key_file is not None:
            raise ValueError("key_env and key_file can't both be given")
        return self

    def key(self) -> str | None:
        """Reads the key; None if the mix names none. Raises ValueError if it is missing."""
        if self.key_env is not None:
            if not (secret := os.environ.get(self.key_env)):
                raise ValueError(f"tenant {self.name}: the environment variable {self.key_env} (key_env) is not set")
            return secret
        if self.key_file is None:
            return None
        try:
            return self.key_file.read_text().strip()
        except OSError as problem:
            raise ValueError(f"tenant {self.name}: key_file: {problem.strerror}: {self.key_file}") from None


class Mix(_Section):
    endpoints: list[Endpoint] = []
    tenants: list[Tenant] = [Tenant(name="all")]
    prompts: list[str] | None = None
    """Prompts to draw from; None to make them up."""

    @model_validator(mode="after")
    def _check_lists(self) -> Self:
        if not self.tenants or len({tenant.name for tenant in self.tenants}) < len(self.tenants):
            raise ValueError("tenants should have different names, or be left out")
        if self.prompts is not None and not self.prompts:
            raise ValueError("prompts should have at least one, or be left out")
        return self

    @property
    def weights(self) -> dict[str, float]:
        return {tenant.name: tenant.weight for tenant in self.tenants}

    def prompt(self, rng: random.Random) -> str:
        if self.prompts:
            return rng.choice(self.prompts)
        colour, background = rng.sample(_COLOURS, 2)
        return f"a {rng.choice(('small', 'large'))} {colour} {rng.choice(_OBJECTS)} on a {background} background"

    def requests(self, moments: Sequence[float], seed: int = 0) -> list[LoadRequest]:
        """Draws a request for each moment; equal seeds draw equal requests. Raises ValueError without endpoints."""
        self._check_endpoints()
        rng, result = random.Random(f"mix {seed}"), list[LoadRequest]()
        by_endpoint = [each.weight for each in self.endpoints]
        by_tenant = [each.traffic for each in self.tenants]
        shapes = {id(each): each.shapes() for each in self.endpoints}
        for moment in moments:
            [endpoint] = rng.choices(self.endpoints, by_endpoint)
            [tenant] = rng.choices(self.tenants, by_tenant)
            shape = rng.choice(shapes[id(endpoint)])
            result.append(self._request(len(result), moment, endpoint, shape, tenant, rng))
        return result

    def request_per_kind(self) -> list[LoadRequest]:
        """Returns a request of every kind in the mix. Raises ValueError without endpoints."""
        self._check_endpoints()
        kinds = [(endpoint, shape) for endpoint in self.endpoints for shape in endpoint.shapes()]
        rng = random.Random("one of each")
        return [self._request(number, 0.0, *kind, self.tenants[0], rng) for number, kind in enumerate(kinds)]

    def _check_endpoints(self) -> None:
        if not self.endpoints:
            raise ValueError("endpoints: the mix has none")

    def _request(
        self, number: int, moment: float, endpoint: Endpoint, shape: Shape, tenant: Tenant, rng: random.Random
    ) -> LoadRequest:
        prompt, seed = self.prompt(rng), rng.randrange(_MAX_SEED)
        name, size, body = endpoint.endpoint, endpoint.reference_size, endpoint.body
        return LoadRequest(number, moment, name, shape, tenant.name, prompt, seed, size, body)


def load_mix(path: Path) -> Mix:
    """Reads a mix. Raises FileNotFoundError, or ValueError that names the file, the field and the problem."""
    try:
        text = path.read_text()
        _check_keys(yaml.compose(text), path)
        content = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ValueError(f"{path} is no YAML: {problem}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} should list endpoints and their weights, but lists none")
    if isinstance(content.get("prompts"), str):  # a file with a prompt per line
        file = path.parent / content["prompts"]
        try:
            lines = file.read_text().splitlines()
        except OSError as problem:
            raise ValueError(f"prompts: {problem.strerror}: {file}") from None
        content = {**content, "prompts": [line.strip() for line in lines if line.strip()]}
    try:
        mix = Mix.model_validate(content)
    except ValidationError as problem:
        raise ValueError(f"{path}: {_error_text(problem)}") from None
    # Paths in the file are relative to it.
    tenants = [
        tenant.model_copy(update={"key_file": path.parent / tenant.key_file}) if tenant.key_file else tenant
        for tenant in mix.tenants
    ]
    return mix.model_copy(update={"tenants": tenants})


def _check_keys(node: yaml.Node | None, path: Path) -> None:
    """Raises ValueError for a repeated key, of which YAML's parser would drop the first."""
    keys = set[str]()
    for each in node.value if isinstance(node, yaml.CollectionNode) else ():
        key, value = each if isinstance(each, tuple) else (None, each)
        if key is not None and key.value in keys:
            raise ValueError(f"{path}:{key.start_mark.line + 1}: {key.value} is repeated here: merge the two")
        keys |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        _check_keys(value, path)


def _error_text(problem: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the line'}: {each['msg']}" for each in problem.errors())


class Arrival(_Section):
    """Line of a trace: time and shape of a request, without its content."""

    offset: float = Field(ge=0, allow_inf_nan=False)
    """Seconds after the first request."""
    endpoint: str = Field(min_length=1, pattern=r"^[\w./-]+$")
    tenant: int = Field(default=0, ge=0)
    """Number of the tenant, in the order of first requests."""
    width: Annotated[int, Field(ge=1, le=65536)] | None = None
    height: Annotated[int, Field(ge=1, le=65536)] | None = None
    steps: AtLeastOne | None = None
    references: int = Field(default=0, ge=0)
    seconds: AtLeastOne | None = None
    tuned: bool = False

    @property
    def shape(self) -> Shape:
        size = Size(self.width, self.height) if self.width and self.height else None
        return Shape(size, self.steps, self.references, self.seconds, self.tuned)


def write_trace(path: Path, arrivals: Iterable[Arrival]) -> None:
    path.write_text("".join(f"{each.model_dump_json(exclude_defaults=True)}\n" for each in arrivals))


def read_trace(path: Path) -> list[Arrival]:
    """Reads a trace in the order of time. Raises FileNotFoundError, or ValueError that names the line and field."""
    arrivals: list[Arrival] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            if line.strip():
                arrivals.append(Arrival.model_validate_json(line))
        except ValidationError as problem:
            raise ValueError(f"{path}, line {number}: {_error_text(problem)}") from None
    if not arrivals:
        raise ValueError(f"{path} holds no requests")
    return sorted(arrivals, key=lambda each: each.offset)


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a run. Times are in seconds."""

    settings: Mapping[str, Any]
    """Settings to show in the summary."""
    requests: Sequence[LoadRequest]
    weights: Mapping[str, float]
    """Share of the server that each tenant is entitled to, relative to the others."""
    duration: float | None
    """Length of the part that counts; None: until the last request has ended."""
    warm_up: float
    """Length of the part before it."""
    concurrency: int | None = None
    """Requests in flight of a closed loop; None for an open one."""

    @property
    def title(self) -> str:
        load = f"{self.concurrency} at a time" if self.concurrency else f"{self.settings['rate']:.4g} per second"
        return f"{self.settings['source']}, {load}"


@dataclass(frozen=True, slots=True)
class Load:
    """Mix with an arrival pattern, but without a rate yet."""

    mix: Mix
    source: str
    """Name of the mix to show."""
    duration: float
    warm_up: float = 0.0
    pattern: Pattern = "poisson"
    peak: float | None = None
    period: float = 60.0

    def at(self, rate: float, seed: int = 0) -> Plan:
        """Plans an open loop. Raises ValueError for an invalid rate, peak or period, or if nothing would be sent."""
        moments = schedule(self.pattern, rate, self.warm_up + self.duration, seed, peak=self.peak, period=self.period)
        if not any(moment >= self.warm_up for moment in moments):
            raise ValueError(f"{rate:g} requests per second for {self.duration:g} s are no request at all")
        peaks = {"peak": self.peak, "period": self.period} if self.pattern in ("bursts", "diurnal") else {}
        settings = self._settings(seed) | {"arrivals": self.pattern, "rate": rate} | peaks
        return Plan(settings, self.mix.requests(moments, seed), self.mix.weights, self.duration, self.warm_up)

    def closed_loop(self, concurrency: int, requests: int | None, seed: int = 0) -> Plan:
        """Plans a closed loop of so many requests, or else of the load's duration."""
        pool = self.mix.requests([0.0] * (requests or _POOL), seed)
        duration = None if requests else self.duration
        settings = self._settings(seed) | {"arrivals": "closed", "rate": None, "concurrency": concurrency}
        settings |= {"duration": duration, "num_requests": requests}
        return Plan(settings, pool, self.mix.weights, duration, self.warm_up, concurrency)

    def _settings(self, seed: int) -> dict[str, Any]:
        return {"source": self.source, "duration": self.duration, "warm_up": self.warm_up, "seed": seed}


def replay(arrivals: Sequence[Arrival], mix: Mix, source: str, *, speed: float, warm_up: float, seed: int) -> Plan:
    """Plans a trace again, `speed` times as fast, with the prompts of the mix or made-up ones.

    Tenants of the trace map to those of the mix in turn, or keep their numbers if the mix has one tenant. Raises
    ValueError if the warm-up covers the whole trace.
    """
    if not 0 < speed < math.inf:
        raise ValueError(f"the speed should be a number above 0, not {speed}")
    rng, weights, requests = random.Random(f"trace {seed}"), dict[str, float](), list[LoadRequest]()
    for number, each in enumerate(arrivals):
        tenant = mix.tenants[each.tenant % len(mix.tenants)]
        name = tenant.name if len(mix.tenants) > 1 else f"tenant {each.tenant}"
        weights[name] = tenant.weight
        moment, request_seed = (each.offset - arrivals[0].offset) / speed, rng.randrange(_MAX_SEED)
        requests.append(LoadRequest(number, moment, each.endpoint, each.shape, name, mix.prompt(rng), request_seed))
    # The last request counts for the mean gap.
    length = requests[-1].moment * len(requests) / max(1, len(requests) - 1) or 1.0
    if warm_up > requests[-1].moment:
        raise ValueError(f"a warm-up of {warm_up:g} s leaves nothing of a trace of {length:.1f} s")
    settings = {"source": source, "duration": length - warm_up, "warm_up": warm_up, "seed": seed}
    settings |= {"arrivals": "recorded", "rate": round(len(requests) / length, 4), "speed": speed}
    return Plan(settings, requests, weights, length - warm_up, warm_up)


def replay_notes(arrivals: Sequence[Arrival], mix: Mix, finetune: str | None) -> list[str]:
    """Returns the differences between a replay and the recorded load."""
    notes: list[str] = []
    tenants = len({each.tenant for each in arrivals})
    if tenants > len(mix.tenants):
        notes.append(f"{tenants} tenants were recorded, and sent with {len(mix.tenants)} keys")
    if (tuned := sum(each.tuned for each in arrivals)) and finetune is None:
        notes.append(f"{tuned} requests of tuned models were sent without one; name one with --finetune")
    return notes
