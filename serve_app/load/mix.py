"""What is sent: a mix of endpoints and tenants, from a YAML file."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from serve_app.load.prompts import made_up
from serve_app.load.request import Request
from serve_app.load.shape import Shape, Size

_MAX_SEED: Final = 2**31

SizeText = Annotated[Size, BeforeValidator(Size.parsed), PlainSerializer(str)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Endpoint(_Section):
    """Of `sizes`, `steps` and `seconds` each request takes one, all equally likely; left out, the server chooses."""

    endpoint: str = Field(min_length=1)
    """Its name, without `/v1/`; with the OpenAI adapter the model."""
    weight: Weight = 1
    """Its share of the requests, against the others'."""
    sizes: list[SizeText] = []
    steps: list[Annotated[int, Field(ge=1)]] = []
    """Sent where the endpoint takes steps; counted as work in any case."""
    references: int = Field(default=0, ge=0, le=16)
    reference_size: SizeText = Size(512, 512)
    seconds: list[Annotated[int, Field(ge=1)]] = []
    body: dict[str, Any] = {}


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
        if self.key_file is not None:
            try:
                return self.key_file.read_text().strip()
            except OSError as problem:
                raise ValueError(f"tenant {self.name}: key_file: {problem.strerror}: {self.key_file}") from None
        return None


class Poll(_Section):
    url: str = Field(min_length=1)
    """Where the answer to the submission has the address."""
    status: str = Field(min_length=1)
    """Where the answer to a poll has the status."""
    done: list[str] = Field(min_length=1)
    failed: list[str] = []


class Template(_Section):
    """How the plain HTTP adapter asks. `{prompt} {width} {height} {steps} {seconds} {seed} {endpoint} {key}` are
    filled in; where a whole value is one of them it keeps its type."""

    method: Literal["POST", "PUT", "GET"] = "POST"
    path: str = Field(min_length=1)
    headers: dict[str, str] = {}
    body: dict[str, Any] | None = None
    good: list[Annotated[int, Field(ge=100, le=599)]] = Field(default=[200], min_length=1)
    """Status codes that mean that all went well."""
    result: str | None = None
    """Where the last answer has its result, as names and positions with dots between them: `data.0.url`."""
    poll: Poll | None = None
    """How a task is followed that the answer only names; left out, the answer is the result."""


class Mix(_Section):
    endpoints: list[Endpoint] = []
    tenants: list[Tenant] = [Tenant(name="all")]
    prompts: list[str] | None = None
    """One is drawn for each request; left out, they are made up."""
    http: Template | None = None

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [tenant.name for tenant in self.tenants]
        if not names:
            raise ValueError("tenants should have at least one, or be left out")
        if len(set(names)) < len(names):
            raise ValueError("tenants should have different names")
        if self.prompts is not None and not self.prompts:
            raise ValueError("prompts should have at least one, or be left out")
        return self

    def prompt(self, chance: random.Random) -> str:
        return chance.choice(self.prompts) if self.prompts else made_up(chance)

    def requests(self, moments: Sequence[float], seed: int = 0) -> list[Request]:
        """One for each moment. The same seed draws the same. Raises ValueError without endpoints."""
        self._some_endpoints()
        return list(self._drawn(moments, random.Random(f"mix {seed}")))

    def one_of_each(self) -> list[Request]:
        """A request of every kind that the mix may draw. Raises ValueError without endpoints."""
        chance = random.Random("one of each")
        kinds = [
            (chosen, Shape(size, steps, chosen.references, seconds, "finetune_id" in chosen.body))
            for chosen in self._some_endpoints()
            for size, steps, seconds in product(
                chosen.sizes or [None], chosen.steps or [None], chosen.seconds or [None]
            )
        ]
        tenant = self.tenants[0].name
        return [
            Request(
                number,
                0.0,
                chosen.endpoint,
                shape,
                tenant,
                self.prompt(chance),
                number,
                chosen.reference_size,
                chosen.body,
            )
            for number, (chosen, shape) in enumerate(kinds)
        ]

    def _some_endpoints(self) -> list[Endpoint]:
        if not self.endpoints:
            raise ValueError("endpoints: the mix has none")
        return self.endpoints

    def _drawn(self, moments: Sequence[float], chance: random.Random) -> Iterator[Request]:
        by_endpoint = [each.weight for each in self.endpoints]
        by_tenant = [each.traffic for each in self.tenants]
        for number, moment in enumerate(moments):
            [chosen] = chance.choices(self.endpoints, by_endpoint)
            [tenant] = chance.choices(self.tenants, by_tenant)
            shape = Shape(
                size=chance.choice(chosen.sizes) if chosen.sizes else None,
                steps=chance.choice(chosen.steps) if chosen.steps else None,
                references=chosen.references,
                seconds=chance.choice(chosen.seconds) if chosen.seconds else None,
                tuned="finetune_id" in chosen.body,
            )
            yield Request(
                number,
                moment,
                chosen.endpoint,
                shape,
                tenant.name,
                self.prompt(chance),
                chance.randrange(_MAX_SEED),
                chosen.reference_size,
                chosen.body,
            )


def load(path: Path) -> Mix:
    """Raises FileNotFoundError, or ValueError that names the file, the field and what is wrong with it."""
    try:
        told = yaml.safe_load(path.read_text())
    except yaml.YAMLError as problem:
        raise ValueError(f"{path} is no YAML: {problem}") from None
    if not isinstance(told, dict):
        raise ValueError(f"{path} should hold endpoints and their weights, and holds none")
    try:
        mix = Mix.model_validate(_with_prompts(told, path.parent))
    except ValidationError as problem:
        raise ValueError(f"{path}: {_told(problem)}") from None
    # Paths in the file are relative to it.
    tenants = [
        tenant.model_copy(update={"key_file": path.parent / tenant.key_file}) if tenant.key_file else tenant
        for tenant in mix.tenants
    ]
    return mix.model_copy(update={"tenants": tenants})


def _with_prompts(told: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`prompts` may name a file with one a line."""
    if not isinstance(told.get("prompts"), str):
        return told
    file = folder / told["prompts"]
    try:
        lines = file.read_text().splitlines()
    except OSError as problem:
        raise ValueError(f"prompts: {problem.strerror}: {file}") from None
    return {**told, "prompts": [line.strip() for line in lines if line.strip()]}


def _told(problem: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in problem.errors())
