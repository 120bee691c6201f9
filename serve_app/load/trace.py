"""A recorded load: when requests came and what they asked for, and nothing of what was in them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serve_app.load.mix import Mix
from serve_app.load.request import Request
from serve_app.load.shape import Shape, Size

_MAX_SEED: Final = 2**31
_REFERENCE: Final = Size(512, 512)

Pixels = Annotated[int, Field(ge=1, le=65536)]


class Arrival(BaseModel):
    """A line of a trace."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offset: float = Field(ge=0, allow_inf_nan=False)
    """Seconds after the first."""
    endpoint: str = Field(min_length=1, pattern=r"^[\w./-]+$")
    tenant: int = Field(default=0, ge=0)
    """Numbered in the order in which they first come."""
    width: Pixels | None = None
    height: Pixels | None = None
    steps: int | None = Field(default=None, ge=1)
    references: int = Field(default=0, ge=0)
    seconds: int | None = Field(default=None, ge=1)
    tuned: bool = False

    @property
    def shape(self) -> Shape:
        size = Size(self.width, self.height) if self.width and self.height else None
        return Shape(size, self.steps, self.references, self.seconds, self.tuned)

    @classmethod
    def of(cls, offset: float, endpoint: str, tenant: int, shape: Shape) -> Self:
        width, height = shape.size or (None, None)
        return cls(
            offset=round(offset, 3),
            endpoint=endpoint,
            tenant=tenant,
            width=width,
            height=height,
            steps=shape.steps,
            references=shape.references,
            seconds=shape.seconds,
            tuned=shape.tuned,
        )


def write(path: Path, arrivals: Iterable[Arrival]) -> None:
    path.write_text("".join(f"{each.model_dump_json(exclude_defaults=True)}\n" for each in arrivals))


def read(path: Path) -> list[Arrival]:
    """In the order of time. Raises FileNotFoundError, or ValueError that names the line and the field."""
    arrivals: list[Arrival] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            arrivals.append(Arrival.model_validate_json(line))
        except ValidationError as problem:
            first = problem.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ValueError(f"{path}, line {number}: {f'{field}: ' if field else ''}{first['msg']}") from None
    if not arrivals:
        raise ValueError(f"{path} holds no requests")
    return sorted(arrivals, key=lambda each: each.offset)


def requests(arrivals: Sequence[Arrival], mix: Mix, speed: float = 1.0, seed: int = 0) -> list[Request]:
    """The load once more, `speed` times as fast. Prompts are the mix's, or made up; tenants those of the mix in turn,
    or as many as the trace has where the mix names only one."""
    if not 0 < speed < float("inf"):
        raise ValueError(f"the speed should be a number above 0, not {speed}")
    chance = random.Random(f"trace {seed}")
    first = arrivals[0].offset
    return [
        Request(
            number,
            (each.offset - first) / speed,
            each.endpoint,
            each.shape,
            tenant_name(mix, each.tenant),
            mix.prompt(chance),
            chance.randrange(_MAX_SEED),
            _REFERENCE,
        )
        for number, each in enumerate(arrivals)
    ]


def tenant_name(mix: Mix, number: int) -> str:
    return mix.tenants[number % len(mix.tenants)].name if len(mix.tenants) > 1 else f"tenant {number}"


def notes(arrivals: Sequence[Arrival], mix: Mix, finetune: str | None) -> list[str]:
    """In what a replay differs from what was recorded."""
    found: list[str] = []
    tenants = len({each.tenant for each in arrivals})
    if tenants > len(mix.tenants):
        found.append(f"{tenants} tenants were recorded, and sent with {len(mix.tenants)} keys")
    if (tuned := sum(each.tuned for each in arrivals)) and finetune is None:
        found.append(f"{tuned} requests were for tuned models, and sent without")
    return found
