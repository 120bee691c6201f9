"""The moderation gate: calls, retries and limits of the moderator, thresholds, and the catalog's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from deployments.contract.moderation import CATEGORIES, Scores, Thresholds, Tolerance, lowest
from serve_app.moderation.gate import DispatcherDraining, Gate, ModeratorLimiter, Unmoderated
from serve_app.moderation.settings import ModerationCatalog

MEDIUM = Tolerance(2)
THRESHOLDS = Thresholds({"violence": (0.2, 0.4, 0.6), "hate": (0.5,)})


class FakeModerator:
    """Scores subjects after a number of failures."""

    def __init__(self, scores: dict[str, Scores] | None = None, failures: int = 0) -> None:
        self.scores = scores or {}
        self.failures = failures
        self.calls: list[str] = []

    async def __call__(self, subject: str) -> Scores:
        self.calls.append(subject)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone")
        return self.scores.get(subject, {})


async def hang(subject: str) -> Scores:
    return await asyncio.Future()


def make_gate(classify: Callable[[str], Awaitable[Scores]], **options: Any) -> Gate:
    return Gate(cast(Any, SimpleNamespace(moderate_text=classify, moderate_object=classify)), THRESHOLDS, **options)


def leaving() -> asyncio.Event:
    draining = asyncio.Event()
    draining.set()
    return draining


async def test_prompt_and_all_images_are_moderated() -> None:
    moderator = FakeModerator({"a fight": {"violence": 0.5}, "inputs/2": {"violence": 0.7, "hate": 0.9}})
    gate = make_gate(moderator)
    assert await gate.request("a fight", ["inputs/1", "inputs/2"], MEDIUM, asyncio.Event()) == ["hate", "violence"]
    assert sorted(moderator.calls) == ["a fight", "inputs/1", "inputs/2"]
    assert await gate.request("a fight", ["inputs/1"], MEDIUM, asyncio.Event()) == []
    assert await gate.request("a fight", [], Tolerance(0), asyncio.Event()) == ["violence"]
    moderator.calls.clear()
    assert await gate.request("  ", [], MEDIUM, asyncio.Event()) == []
    assert moderator.calls == [], "an empty prompt is not moderated"


@pytest.mark.parametrize("moderator", [FakeModerator(failures=1000), hang], ids=["fails", "hangs"])
async def test_nothing_passes_unmoderated(moderator: Any) -> None:
    gate = make_gate(moderator, wait_s=0.3, call_s=0.05)
    with pytest.raises(Unmoderated):
        await gate.request("x", [], MEDIUM, asyncio.Event())
    with pytest.raises(Unmoderated):
        await gate.output(["results/t/1/image.png"], MEDIUM, asyncio.Event())
    assert not await gate.preview("results/t/1/preview-1.jpeg", MEDIUM)
    with pytest.raises(DispatcherDraining):
        await make_gate(moderator, call_s=0.05, wait_s=60).request("x", [], MEDIUM, leaving())
    open_gate = make_gate(moderator, call_s=0.05, wait_s=0, fail_open=True)
    assert await open_gate.request("x", ["inputs/1"], MEDIUM, asyncio.Event()) == [], "unless the settings allow it"


async def test_videos_have_a_time_limit_of_their_own() -> None:
    gate = make_gate(hang, call_s=3600.0, video_call_s=0.05, wait_s=0.1)
    with pytest.raises(Unmoderated):
        await gate.output(["results/t/1/clip.mp4"], MEDIUM, asyncio.Event())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await gate.output(["results/t/1/image.png"], MEDIUM, asyncio.Event())


async def test_duration_is_observed_with_and_without_success() -> None:
    subjects: list[str] = []

    def observe(subject: str, seconds: float) -> None:
        subjects.append(subject)

    with pytest.raises(Unmoderated):
        await make_gate(FakeModerator(failures=9), wait_s=0.0, observe=observe).request(
            "a fight", [], MEDIUM, asyncio.Event()
        )
    await make_gate(FakeModerator(), observe=observe).output(["results/1"], MEDIUM, asyncio.Event())
    assert subjects == ["request", "output"]


async def test_limited_calls_wait_as_long_as_the_moderator_answers() -> None:
    in_flight, highest = 0, 0

    async def slow(what: str) -> Scores:
        nonlocal in_flight, highest
        in_flight += 1
        highest = max(highest, in_flight)
        try:
            await asyncio.sleep(0.01)
        finally:
            in_flight -= 1
        return {}

    # All calls together take twice as long as the limit of a wait.
    gate = make_gate(slow, call_s=30, wait_s=0.5, calls=ModeratorLimiter(2))
    reasons = await asyncio.gather(*(gate.request(str(n), [], MEDIUM, asyncio.Event()) for n in range(200)))
    assert reasons == [[]] * 200
    assert highest == 2


@pytest.mark.parametrize("key", ["results/t/1/clip.mp4", "results/t/1/image.png"])
async def test_call_waiting_for_a_slot_ends_when_the_process_drains(key: str) -> None:
    limiters = {"calls": ModeratorLimiter(1), "video_calls": ModeratorLimiter(1)}
    gate = make_gate(hang, call_s=3600, video_call_s=3600, **limiters)
    first = asyncio.create_task(gate.output([key], MEDIUM, asyncio.Event()))
    while not (gate.calls.is_full or gate.video_calls.is_full):
        await asyncio.sleep(0)
    with pytest.raises(DispatcherDraining):
        await gate.output([key], MEDIUM, leaving())
    if gate.calls.is_full:
        assert not await gate.preview("results/t/1/preview-1.jpeg", MEDIUM), "a preview never waits for a slot"
    first.cancel()


async def test_moderator_calls_are_made_first_come_first_served() -> None:
    order: list[str] = []
    free = asyncio.Event()

    async def wait_and_score(what: str) -> Scores:
        order.append(what)
        await free.wait()
        return {}

    gate = make_gate(wait_and_score, calls=ModeratorLimiter(1))
    waiting = []
    for name in ("holds", "early", "gives up", "late"):
        waiting.append(asyncio.create_task(gate.request(name, [], MEDIUM, asyncio.Event())))
        await asyncio.sleep(0.02)
    waiting[2].cancel()
    free.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["holds", "early", "late"]
    assert not gate.calls.is_full


async def test_failing_call_is_retried_while_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = 0

    async def partly(what: str) -> Scores:
        nonlocal answered
        if what == "bad" and answered < 100:
            raise ConnectionError
        answered += 1
        return {"hate": 1.0}

    monkeypatch.setattr("serve_app.moderation.gate._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("serve_app.moderation.gate._MAX_PAUSE_S", 0.01)
    gate = make_gate(partly, wait_s=0.5)

    async def others() -> None:
        while answered < 100:
            await gate.request("good", [], MEDIUM, asyncio.Event())
            await asyncio.sleep(0.01)

    reasons, _ = await asyncio.gather(gate.request("bad", [], MEDIUM, asyncio.Event()), others())
    assert reasons == ["hate"]


LEVELS = Thresholds({"violence": (0.2, 0.5, 0.8), "hate": (0.3,), "sexual content": (0.4, 0.9)})


@pytest.mark.parametrize(
    ("category", "level", "score", "refused"),
    [
        *(("violence", 0, 0.19, False), ("violence", 0, 0.2, True), ("violence", 1, 0.49, False)),
        *(("violence", 7, 0.79, False), ("violence", 7, 0.8, True), ("hate", 0, 0.3, True), ("hate", 7, 0.3, True)),
        *(("illegal acts", 0, 1.0, False), ("violence", 7, float("nan"), True)),
    ],
)
def test_score_at_its_threshold_is_refused(category: str, level: int, score: float, refused: bool) -> None:
    """Levels beyond the last use the last one; NaN never passes."""
    assert LEVELS.categories_over({category: score}, Tolerance(level)) == ([category] if refused else [])


def test_ceiling_limits_the_tolerance_of_its_category() -> None:
    strict = Tolerance(7, {"violence": 0})
    assert LEVELS.categories_over({"violence": 0.2, "sexual content": 0.89}, strict) == ["violence"]
    assert Tolerance(1, {"violence": 5}).level_for("violence") == 1, "a ceiling must not raise the tolerance"
    assert lowest({"violence": 3, "hate": 1}, {}, {"violence": 2}) == {"hate": 1, "violence": 2}
    scores = {"hate": 0.6, "violence": 0.9, "sexual content": 0.6}
    assert LEVELS.categories_over(scores, Tolerance(0))[0] == "violence", "the highest score must come first"


CLASSIFIERS = {"text": [{"backend": "lexicon"}], "images": [{"backend": "skin"}]}
ALL = {name: [0.2, 0.5] for name in CATEGORIES}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thresholds": {name: [0.5] for name in CATEGORIES[1:]}}, f"{CATEGORIES[0]} missing"),
        ({"thresholds": ALL | {"hate": [0.5, 0.4]}}, "those of hate must not fall"),
        ({"thresholds": ALL | {"hate": []}}, "at least 1 item"),
        ({"thresholds": ALL | {"hate": [1.5]}}, "less than or equal to 1"),
        ({"thresholds": ALL | {"rudeness": [0.5]}}, "must be one of sexual content"),
        ({"text": []}, "text: at least one classifier"),
        ({"images": []}, "images: at least one classifier"),
        ({"text": [{"backend": "oracle"}]}, "backend 'oracle' must be one of"),
        ({"images": [{"backend": "lexicon"}]}, "backend 'lexicon' must be one of"),
        ({"text": [{"backend": "guard", "labels": {"toxic": "rudeness"}}]}, "labels"),
    ],
)
def test_invalid_moderation_catalog_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModerationCatalog.model_validate(CLASSIFIERS | {"thresholds": ALL} | changes)
