"""What failed, kept in a file: later runs try it first, and it can be tried alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from attack.attacks import Attack, Outcome, Shot
from attack.wire import Request

_MOST_BYTES: Final = 64 * 1024
"""Of a request that is kept as it was; larger ones are made anew."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`family`, `seed`, `count` and `name` make the attack anew; `request` is for when they no longer do."""

    family: str
    seed: int
    count: int
    name: str
    wrong: Sequence[str]
    request: dict[str, Any] | None = None

    @classmethod
    def of(cls, family: str, seed: int, count: int, attack: Attack, outcome: Outcome) -> Failure:
        sent = outcome.request
        kept = sent.as_json() if sent is not None and len(sent.body) <= _MOST_BYTES else None
        return cls(family, seed, count, attack.name, list(outcome.wrong), kept)

    @property
    def shown(self) -> str:
        """One line, with all that is needed to see it again."""
        return f"{self.family} --seed {self.seed} --count {self.count} | {self.name} | {'; '.join(self.wrong)}"


def load(file: Path) -> Sequence[Failure]:
    """None where there is no file."""
    if not file.exists():
        return []
    return [Failure(**json.loads(line)) for line in file.read_text().splitlines()]


def save(file: Path, failures: Iterable[Failure]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(asdict(failure)) + "\n" for failure in failures))


def again(
    failures: Sequence[Failure], made: Callable[[str, int, int], Sequence[Attack]]
) -> Iterator[tuple[Failure, Attack]]:
    """The attacks anew; `made` gives those of a family by seed and count."""
    lists: dict[tuple[str, int, int], dict[str, Attack]] = {}
    for failure in failures:
        mark = (failure.family, failure.seed, failure.count)
        if mark not in lists:
            lists[mark] = {attack.name: attack for attack in made(*mark)}
        attack = lists[mark].get(failure.name)
        if attack is None and failure.request is not None:
            request = Request.from_json(failure.request)
            attack = Shot(failure.name, lambda _, request=request: request)
        if attack is not None:
            yield failure, attack
