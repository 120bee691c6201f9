from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pytest

from benchmarks.packing_rounds import COMPARED, Plan, Rounds
from benchmarks.packing_sides import Loop, Mix, Moments, Stepping
from deployments.contract.counts import seconds
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.families.prepared_request import PreparedRequest

FAR_S = 100_000.0


class Side:
    """Makes nothing, in a second each."""

    def __init__(self) -> None:
        self.engine = self
        self.counts: Mapping[str, float] = {}

    def run(self, jobs: Sequence[GenerationJob], arrivals: Sequence[float]) -> list[float]:
        self.counts = {seconds("encode"): self.counts.get(seconds("encode"), 0.0) + len(jobs)}
        return [arrival + 1.0 for arrival in arrivals]

    def file(self, job: GenerationJob) -> bytes:
        return b""


def test_moments_go_on_from_what_was_skipped() -> None:
    moments = Moments()
    moments.skip_to(FAR_S)
    assert FAR_S <= moments.now() < FAR_S + 60
    moments.skip_to(10.0)
    assert moments.now() >= FAR_S


def test_a_side_that_has_nothing_to_do_is_not_waited_for() -> None:
    drawn: list[int] = []

    def draw(requests: Sequence[PreparedRequest]) -> Iterable[bytes]:
        drawn.append(len(requests))
        return [b"" for _ in requests]

    jobs = Mix(shapes=((64, 64),)).jobs(3, 0)
    done = Loop(ObjectStore("memory:///"), draw, 1).run(jobs, [0.0, FAR_S, FAR_S])
    assert done[0] < 60
    assert FAR_S <= done[1] <= done[2] < FAR_S + 60
    assert drawn == [1, 1, 1]


def test_a_job_with_an_adapter_differs_by_that_alone_and_is_kept_apart() -> None:
    [plain], [tuned] = Mix().jobs(1, 5), Mix(adapters=8).jobs(1, 5)
    assert (plain.prompt, plain.width, plain.steps) == (tuned.prompt, tuned.width, tuned.steps)
    assert plain.output_prefix != tuned.output_prefix
    assert plain.id != tuned.id


@pytest.mark.parametrize("halves", [False, True])
def test_the_bar_is_full_at_the_end(monkeypatch: pytest.MonkeyPatch, halves: bool) -> None:
    made: Counter[str] = Counter()
    plan = Plan(pictures=6, warm_up=2, kept=3, alone=1, arrivals=4)
    sides = {name: Side() for name in (*COMPARED, "tuned", "stock", "keeping")}
    engines = cast(dict[str, Stepping], {"engine": sides["engine"], "keeping": sides["keeping"]})
    monkeypatch.setattr("benchmarks.packing_rounds.unlike", lambda *_: [])

    def rounds() -> Rounds:
        return Rounds(plan, cast(Any, sides), engines, lambda what, pictures: made.update({what: pictures}))

    first = rounds()
    rates = first.saturated({**dict.fromkeys(COMPARED, Mix()), "tuned": Mix(adapters=8)})
    assert {name: len(of_rounds) for name, of_rounds in rates.items()} == dict.fromkeys((*COMPARED, "tuned"), 5)
    first.saturated(dict.fromkeys(COMPARED, Mix(references=True)))
    first.under_load(Mix(), 1.0)
    first.repeated(Mix())
    first.alone(Mix())
    for references in (False, True) if halves else ():
        rounds().saturated(dict.fromkeys(COMPARED, Mix(references=references)))
    assert made.total() == plan.total(halves)
