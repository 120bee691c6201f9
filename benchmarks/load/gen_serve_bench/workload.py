"""What is sent, and when: a mix of endpoints and tenants that comes by a pattern or in a closed loop, or a trace."""

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
"""How many times the mean rate there is at the most, unless said otherwise."""
_POOL: Final = 1000
"""Requests that a closed loop of unknown length goes round, each time with other seeds."""
_MAX_SEED: Final = 2**31
_COLOURS: Final = ("red", "green", "blue", "yellow", "orange", "white", "black", "cyan")
_THINGS: Final = ("star", "circle", "square", "triangle", "diamond", "heart")


class Size(NamedTuple):
    """In pixels."""

    width: int
    height: int

    @classmethod
    def parse(cls, text: object) -> Self:
        """Of `512x768`. Raises ValueError for anything else."""
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
    """What a request asks for, as far as its cost depends on it. What is None is left to the server."""

    size: Size | None = None
    steps: int | None = None
    references: int = 0
    """Images that are sent along."""
    seconds: int | None = None
    """Of video."""
    tuned: bool = False
    """Whether a tuned model (LoRA) is asked for."""

    @property
    def work(self) -> float | None:
        """Megapixel-steps, a second of video counting as an image; None where the server chooses size or steps."""
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
class Request:
    """Decided before anything is sent."""

    number: int
    moment: float
    """When it is to be sent, seconds after the start; in a closed loop as soon as there is room."""
    endpoint: str
    shape: Shape
    tenant: str
    prompt: str
    seed: int
    reference_size: Size = _REFERENCE
    body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, as they are."""

    @property
    def kind(self) -> str:
        """What requests that cost the same share."""
        return f"{self.endpoint}, {self.shape}"


def schedule(
    pattern: Pattern, rate: float, duration: float, seed: int = 0, *, peak: float | None = None, period: float = 60.0
) -> list[float]:
    """When requests arrive: seconds after the start, rising, all below `duration`. `rate` is the mean per second.

    `constant` arrivals are evenly spaced and start at once. `poisson` ones are independent of each other, as those of
    many clients are. `bursts` come at `peak` times the mean rate at the beginning of each `period`, and then not at
    all. `diurnal` ones rise and fall like a day that lasts a `period`, up to `peak` times the mean.

    Raises ValueError for what is no such pattern.
    """
    if pattern not in PATTERNS:
        raise ValueError(f"--arrivals should be one of {', '.join(PATTERNS)}, not {pattern!r}")
    if not 0 < rate < math.inf:
        raise ValueError(f"the rate should be a number of requests per second above 0, not {rate}")
    if not 0 < period < math.inf:
        raise ValueError(f"the period should be a number of seconds above 0, not {period}")
    if peak is not None and pattern not in ("bursts", "diurnal"):
        raise ValueError(f"{pattern} arrivals have no peak; bursts and diurnal ones have")
    if peak is not None and not 1 < peak <= (2 if pattern == "diurnal" else 1e6):
        raise ValueError(f"the peak should be above 1 times the mean rate, of diurnal arrivals at most 2, not {peak}")
    if pattern == "constant":
        return [n / rate for n in range(round(rate * duration))]
    chance, most = random.Random(seed), peak or _PEAKS[pattern]
    endless = iter(lambda: chance.expovariate(rate * most), None)
    moments = takewhile(lambda moment: moment < duration, accumulate(endless))
    if pattern == "poisson":
        return list(moments)
    # Thinning (Lewis and Shedler 1979): of arrivals at the highest rate, each stays with the share of its own moment.
    return [moment for moment in moments if chance.random() * most < _relative_rate(pattern, most, moment / period % 1)]


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
    """Of `sizes`, `steps` and `seconds` each request takes one, all equally likely; left out, the server chooses."""

    endpoint: str = Field(min_length=1)
    """Its name, without `/v1/`; with the OpenAI adapter the model."""
    weight: Weight = 1
    sizes: list[SizeText] = []
    steps: list[AtLeastOne] = []
    """Sent where the endpoint takes steps; counted as work in any case."""
    references: int = Field(default=0, ge=0, le=16)
    reference_size: SizeText = _REFERENCE
    seconds: list[AtLeastOne] = []
    body: dict[str, Any] = {}

    def shapes(self) -> list[Shape]:
        choices = product(self.sizes or [None], self.steps or [None], self.seconds or [None])
        tuned = "finetune_id" in self.body
        return [Shape(size, steps, self.references, seconds, tuned) for size, steps, seconds in choices]


class Tenant(_Section):
    """Whose key a request carries."""

    name: str = Field(min_length=1)
    traffic: Weight = 1
    """Its share of the requests, against the others'."""
    weight: Weight = 1
    """What it is entitled to at the server against the others, for the index of fairness."""
    key_env: str | None = None
    key_file: Path | None = None

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key_env is not None and self.key_file is not None:
            raise ValueError("key_env and key_file can't both be given")
        return self

    def key(self) -> str | None:
        """None where none is named. Raises ValueError where it is named and not there."""
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
    """One is drawn for each request; left out, they are made up."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.tenants or len({tenant.name for tenant in self.tenants}) < len(self.tenants):
            raise ValueError("tenants should have different names, or be left out")
        if self.prompts is not None and not self.prompts:
            raise ValueError("prompts should have at least one, or be left out")
        return self

    @property
    def weights(self) -> dict[str, float]:
        return {tenant.name: tenant.weight for tenant in self.tenants}

    def prompt(self, chance: random.Random) -> str:
        if self.prompts:
            return chance.choice(self.prompts)
        thing, ground = chance.sample(_COLOURS, 2)
        return f"a {chance.choice(('small', 'large'))} {thing} {chance.choice(_THINGS)} on a {ground} background"

    def requests(self, moments: Sequence[float], seed: int = 0) -> list[Request]:
        """One for each moment. The same seed draws the same. Raises ValueError without endpoints."""
        self._check()
        chance, result = random.Random(f"mix {seed}"), list[Request]()
        by_endpoint = [each.weight for each in self.endpoints]
        by_tenant = [each.traffic for each in self.tenants]
        shapes = {id(each): each.shapes() for each in self.endpoints}
        for moment in moments:
            [endpoint] = chance.choices(self.endpoints, by_endpoint)
            [tenant] = chance.choices(self.tenants, by_tenant)
            result.append(
                self._request(len(result), moment, endpoint, chance.choice(shapes[id(endpoint)]), tenant, chance)
            )
        return result

    def request_per_kind(self) -> list[Request]:
        """A request of every kind that the mix may draw. Raises ValueError without endpoints."""
        self._check()
        kinds = [(endpoint, shape) for endpoint in self.endpoints for shape in endpoint.shapes()]
        chance = random.Random("one of each")
        return [self._request(number, 0.0, *kind, self.tenants[0], chance) for number, kind in enumerate(kinds)]

    def _check(self) -> None:
        if not self.endpoints:
            raise ValueError("endpoints: the mix has none")

    def _request(
        self, number: int, moment: float, endpoint: Endpoint, shape: Shape, tenant: Tenant, chance: random.Random
    ) -> Request:
        prompt, seed = self.prompt(chance), chance.randrange(_MAX_SEED)
        name, size, body = endpoint.endpoint, endpoint.reference_size, endpoint.body
        return Request(number, moment, name, shape, tenant.name, prompt, seed, size, body)


def load_mix(path: Path) -> Mix:
    """Raises FileNotFoundError, or ValueError that names the file, the field and what is wrong with it."""
    try:
        text = path.read_text()
        _check_keys(yaml.compose(text), path)
        content = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ValueError(f"{path} is no YAML: {problem}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} should hold endpoints and their weights, and holds none")
    if isinstance(content.get("prompts"), str):  # a file with one a line
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
    """Raises ValueError for a key that stands twice: YAML's reader would take the last one, and drop the first."""
    keys = set[str]()
    for each in node.value if isinstance(node, yaml.CollectionNode) else ():
        key, value = each if isinstance(each, tuple) else (None, each)
        if key is not None and key.value in keys:
            raise ValueError(f"{path}:{key.start_mark.line + 1}: {key.value} stands here a second time: merge the two")
        keys |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        _check_keys(value, path)


def _error_text(problem: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the line'}: {each['msg']}" for each in problem.errors())


class Arrival(_Section):
    """A line of a trace: when a request came and what it asked for, and nothing of what was in it."""

    offset: float = Field(ge=0, allow_inf_nan=False)
    """Seconds after the first."""
    endpoint: str = Field(min_length=1, pattern=r"^[\w./-]+$")
    tenant: int = Field(default=0, ge=0)
    """Numbered in the order in which they first come."""
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
    """In the order of time. Raises FileNotFoundError, or ValueError that names the line and the field."""
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
    """What a run is to do. Times in seconds."""

    settings: Mapping[str, Any]
    """As they stand in a summary."""
    requests: Sequence[Request]
    weights: Mapping[str, float]
    """What tenants are entitled to, against each other."""
    duration: float | None
    """Of the requests that count; None: until the last one has ended."""
    warm_up: float
    """Of those before them."""
    concurrency: int | None = None
    """Of a closed loop: requests that are on their way at any time."""

    @property
    def title(self) -> str:
        how = f"{self.concurrency} at a time" if self.concurrency else f"{self.settings['rate']:.4g} per second"
        return f"{self.settings['source']}, {how}"


@dataclass(frozen=True, slots=True)
class Load:
    """A mix that comes by a pattern; at which rate is still open."""

    mix: Mix
    source: str
    """What is sent, for people."""
    duration: float
    warm_up: float = 0.0
    pattern: Pattern = "poisson"
    peak: float | None = None
    period: float = 60.0

    def at(self, rate: float, seed: int = 0) -> Plan:
        """Raises ValueError for a rate, peak or period that can't be, or at which nothing would be sent."""
        moments = schedule(self.pattern, rate, self.warm_up + self.duration, seed, peak=self.peak, period=self.period)
        if not any(moment >= self.warm_up for moment in moments):
            raise ValueError(f"{rate:g} requests per second for {self.duration:g} s are no request at all")
        swings = {"peak": self.peak, "period": self.period} if self.pattern in ("bursts", "diurnal") else {}
        settings = self._settings(seed) | {"arrivals": self.pattern, "rate": rate} | swings
        return Plan(settings, self.mix.requests(moments, seed), self.mix.weights, self.duration, self.warm_up)

    def closed_loop(self, concurrency: int, requests: int | None, seed: int = 0) -> Plan:
        """So many at a time, until so many were sent, or else until the duration is over."""
        pool = self.mix.requests([0.0] * (requests or _POOL), seed)
        duration = None if requests else self.duration
        settings = self._settings(seed) | {"arrivals": "closed", "rate": None, "concurrency": concurrency}
        settings |= {"duration": duration, "num_requests": requests}
        return Plan(settings, pool, self.mix.weights, duration, self.warm_up, concurrency)

    def _settings(self, seed: int) -> dict[str, Any]:
        return {"source": self.source, "duration": self.duration, "warm_up": self.warm_up, "seed": seed}


def replay(arrivals: Sequence[Arrival], mix: Mix, source: str, *, speed: float, warm_up: float, seed: int) -> Plan:
    """The trace once more, `speed` times as fast. Prompts are the mix's, or made up; tenants those of the mix in turn,
    or as many as the trace has where the mix names only one. Raises ValueError where the warm-up is all of it."""
    if not 0 < speed < math.inf:
        raise ValueError(f"the speed should be a number above 0, not {speed}")
    chance, weights, requests = random.Random(f"trace {seed}"), dict[str, float](), list[Request]()
    for number, each in enumerate(arrivals):
        tenant = mix.tenants[each.tenant % len(mix.tenants)]
        name = tenant.name if len(mix.tenants) > 1 else f"tenant {each.tenant}"
        weights[name] = tenant.weight
        moment, request_seed = (each.offset - arrivals[0].offset) / speed, chance.randrange(_MAX_SEED)
        requests.append(Request(number, moment, each.endpoint, each.shape, name, mix.prompt(chance), request_seed))
    # The last request has a time of its own, too: the mean gap.
    length = requests[-1].moment * len(requests) / max(1, len(requests) - 1) or 1.0
    if warm_up > requests[-1].moment:
        raise ValueError(f"a warm-up of {warm_up:g} s leaves nothing of a trace of {length:.1f} s")
    settings = {"source": source, "duration": length - warm_up, "warm_up": warm_up, "seed": seed}
    settings |= {"arrivals": "recorded", "rate": round(len(requests) / length, 4), "speed": speed}
    return Plan(settings, requests, weights, length - warm_up, warm_up)


def replay_notes(arrivals: Sequence[Arrival], mix: Mix, finetune: str | None) -> list[str]:
    """In what a replay differs from what was recorded."""
    notes: list[str] = []
    tenants = len({each.tenant for each in arrivals})
    if tenants > len(mix.tenants):
        notes.append(f"{tenants} tenants were recorded, and sent with {len(mix.tenants)} keys")
    if (tuned := sum(each.tuned for each in arrivals)) and finetune is None:
        notes.append(f"{tuned} requests were for tuned models, and sent without")
    return notes
