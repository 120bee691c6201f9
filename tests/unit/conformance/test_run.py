"""Which checks are chosen, what each verdict comes from, and that no more is spent than may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.http_service import serving
from support.toy_dialect import KEY, ToyDialect

from serve_app.conformance import report
from serve_app.conformance.budget import Budget
from serve_app.conformance.check import Check, Outcome, Topic, Verdict
from serve_app.conformance.run import Options, chosen, run
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.topics import TOPICS
from serve_app.conformance.verdicts import Broken, Skipped

KLEIN = "gen-3-image-klein"


async def judged(*checks: Check, budget: float = 100, fault: str = "", **options: object) -> list[Outcome]:
    with serving(ToyDialect(fault).app) as base_url:
        chosen_options = Options(base_url=base_url, key=KEY, budget=budget, **options)  # pyright: ignore[reportArgumentType]
        return [outcome async for outcome in run(checks, chosen_options)]


def check_that(does: Callable[[Session], object], needs: str | None = None) -> Check:
    async def run_it(session: Session) -> None:
        does(session)

    return Check("toy", "A section", "A sentence.", run_it, needs=needs)  # pyright: ignore[reportArgumentType]


def test_topics_have_names_of_their_own_and_checks() -> None:
    names = [topic.name for topic in TOPICS]
    assert len(names) == len(set(names))
    assert all(topic.checks for topic in TOPICS)


def test_a_sentence_stands_in_its_section_once() -> None:
    told = [(check.topic, check.section, check.sentence) for check in chosen() if "All answer" not in check.sentence]
    assert len(told) == len(set(told))


def test_the_interface_alone_leaves_out_what_was_decided() -> None:
    alone, all_of_it = chosen(interface_only=True), chosen()
    assert 150 < len(alone) < len(all_of_it)
    assert not any(check.section.startswith("Decided") for check in alone)


def test_topics_can_be_chosen() -> None:
    assert {check.topic for check in chosen(["usage", "money"])} == {"usage", "money"}
    with pytest.raises(ValueError, match=r"no section nonsense; there are submission, .*money"):
        chosen(["nonsense"])


@pytest.mark.parametrize(
    ("problem", "verdict", "reason"),
    [
        (None, Verdict.HOLDS, ""),
        (Broken("200"), Verdict.FAILS, "200"),
        (Skipped("not here"), Verdict.SKIPPED, "not here"),
        (KeyError("id"), Verdict.FAILS, "an answer of the form described; reading it: KeyError('id')"),
    ],
)
async def test_a_check_comes_to_a_verdict(problem: Exception | None, verdict: Verdict, reason: str) -> None:
    def does(session: Session) -> None:
        if problem is not None:
            raise problem

    [outcome] = await judged(check_that(does))
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


@pytest.mark.parametrize("needs", ["receiver", "finetune", "video"])
async def test_what_a_check_needs_and_has_not_is_told(needs: str) -> None:
    [outcome] = await judged(check_that(lambda session: None, needs))
    assert outcome.verdict is Verdict.SKIPPED
    assert f"--{needs}" in outcome.reason


async def test_what_fails_is_told_with_what_was_sent_and_received() -> None:
    topic = Topic("toy")

    @topic.holds("A section", "A sentence.")
    async def refuses(session: Session) -> None:
        await session.refuses(KLEIN, {"steps": 1}, "steps")

    [outcome] = await judged(*topic.checks)
    lines = list(report.failures([outcome]))
    assert lines[0] == "\nFAILS A section: A sentence."
    assert lines[1] == "  expected  422 for steps 1"
    assert lines[2].startswith("  sent      POST /v1/gen-3-image-klein {")
    assert lines[3].startswith("  received  200 ")
    assert KEY not in "".join(lines)


async def test_no_more_is_spent_than_the_budget() -> None:
    topic = Topic("toy")

    @topic.holds("A section", "One.")
    @topic.holds("A section", "Another.")
    @topic.holds("A section", "One too many.")
    async def makes_one(session: Session) -> None:
        await session.finished(KLEIN, {"seed": len(session.target.finished)})

    outcomes = await judged(*topic.checks, budget=2.5)
    assert [each.verdict for each in outcomes] == [Verdict.HOLDS, Verdict.HOLDS, Verdict.SKIPPED]
    assert outcomes[2].reason == "it would cost 1 credits, and 0.5 are left of the budget"


async def test_what_is_cancelled_costs_nothing() -> None:
    topic = Topic("toy")

    @topic.holds("A section", "A sentence.")
    async def submits(session: Session) -> None:
        for _ in range(3):
            await session.submit(KLEIN, minimal(KLEIN))

    outcomes = await judged(*topic.checks * 3, budget=3)
    assert {each.verdict for each in outcomes} == {Verdict.HOLDS}


async def test_checks_that_look_at_the_same_result_share_a_task() -> None:
    topic, ids = Topic("toy"), list[str]()

    @topic.holds("A section", "A sentence.")
    async def looks(session: Session) -> None:
        ids.append((await session.finished(KLEIN))["id"])

    await judged(*topic.checks * 2)
    assert len(ids) == 2
    assert ids[0] == ids[1]


def test_a_budget_gives_back_what_was_not_spent() -> None:
    budget = Budget(10)
    budget.reserve(8)
    with pytest.raises(Skipped, match=r"it would cost 8 credits, and 2 are left"):
        budget.reserve(8)
    budget.correct(8, 1.5)
    budget.reserve(8)
    assert budget.spent == 9.5
