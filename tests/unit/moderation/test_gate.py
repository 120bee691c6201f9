"""The gate on its own: judgements come from the test, pauses are real but short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from deployments.contract.moderation import Scores, Thresholds, Tolerance
from deployments.contract.objects import ObjectStore
from serve_app.moderation.gate import Calls, Gate, Leaving, Unjudged

MEDIUM = Tolerance(2)
THRESHOLDS = Thresholds({"violence": (0.2, 0.4, 0.6), "hate": (0.5,)})


class Moderator:
    """Scores by text or key; fails as often as it is told to."""

    def __init__(self, scores: dict[str, Scores] | None = None, failures: int = 0) -> None:
        self.scores = scores or {}
        self.failures = failures
        self.asked: list[str] = []

    async def judge(self, what: str) -> Scores:
        self.asked.append(what)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone")
        return self.scores.get(what, {})

    async def hang(self, what: str) -> Scores:
        await asyncio.Event().wait()
        return {}


def gate_of(moderator: Moderator, judge: Callable[[str], Awaitable[Scores]] | None = None, **options: object) -> Gate:
    call = judge or moderator.judge
    return Gate(call, call, THRESHOLDS, ObjectStore("memory:///"), **options)  # type: ignore[arg-type]


def stay() -> bool:
    return False


async def test_the_prompt_and_all_pictures_are_judged() -> None:
    moderator = Moderator({"a fight": {"violence": 0.5}, "inputs/2": {"violence": 0.7, "hate": 0.9}})
    gate = gate_of(moderator)
    assert await gate.request("a fight", ["inputs/1", "inputs/2"], MEDIUM, stay) == ["hate", "violence"]
    assert sorted(moderator.asked) == ["a fight", "inputs/1", "inputs/2"]
    assert await gate.request("a fight", ["inputs/1"], MEDIUM, stay) == []
    assert await gate.request("a fight", [], Tolerance(0), stay) == ["violence"]


async def test_an_empty_prompt_needs_no_judgement() -> None:
    moderator = Moderator()
    assert await gate_of(moderator).request("  ", [], MEDIUM, stay) == []
    assert moderator.asked == []


async def test_a_moderator_that_comes_back_is_waited_for() -> None:
    moderator = Moderator({"x": {"hate": 1.0}}, failures=2)
    assert await gate_of(moderator).request("x", [], MEDIUM, stay) == ["hate"]
    assert len(moderator.asked) == 3


@pytest.mark.parametrize("hangs", [False, True])
async def test_nothing_passes_unjudged(hangs: bool) -> None:
    moderator = Moderator(failures=1000)
    gate = gate_of(moderator, moderator.hang if hangs else None, wait_s=0.3, call_s=0.05)
    with pytest.raises(Unjudged):
        await gate.request("x", [], MEDIUM, stay)
    with pytest.raises(Unjudged):
        await gate.output("unjudged/t/1/picture.png", MEDIUM, stay)
    assert await gate.preview("unjudged/t/1/preview-1.jpeg", MEDIUM) is None


async def test_a_video_takes_longer_to_judge_than_a_picture() -> None:
    moderator = Moderator()
    limits = {"call_s": 3600.0, "video_call_s": 0.05, "wait_s": 0.1}
    gate = gate_of(moderator, moderator.hang, **limits)
    with pytest.raises(Unjudged):
        await gate.output("unjudged/t/1/clip.mp4", MEDIUM, stay)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await gate.output("unjudged/t/1/picture.png", MEDIUM, stay)


async def test_unless_the_configuration_says_so() -> None:
    gate = gate_of(Moderator(failures=1000), wait_s=0, open_when_down=True)
    assert await gate.request("x", ["inputs/1"], MEDIUM, stay) == []


async def test_a_process_that_shuts_down_does_not_wait() -> None:
    with pytest.raises(Leaving):
        await gate_of(Moderator(failures=1000), wait_s=60).request("x", [], MEDIUM, lambda: True)


async def test_what_passed_is_moved_to_where_links_lead() -> None:
    gate = gate_of(Moderator({"unjudged/t/1/bad.jpeg": {"hate": 1.0}}))
    await gate.objects.put("unjudged/t/1/picture.png", b"picture", "image/png")
    await gate.objects.put("unjudged/t/1/bad.jpeg", b"bad", "image/jpeg")
    assert await gate.preview("unjudged/t/1/picture.png", MEDIUM) == "results/t/1/picture.png"
    assert await gate.preview("unjudged/t/1/bad.jpeg", MEDIUM) is None
    assert await gate.objects.keys("results") == ["results/t/1/picture.png"]
    await gate.discard("unjudged/t/1/bad.jpeg")
    await gate.discard("unjudged/t/1/bad.jpeg")
    assert await gate.objects.keys("unjudged") == []


async def test_a_result_that_can_not_be_moved_is_made_again() -> None:
    with pytest.raises(Leaving):
        await gate_of(Moderator()).release("unjudged/t/1/picture.png")


async def test_how_long_judging_takes_is_told_whatever_comes_of_it() -> None:
    told: list[str] = []

    def took(what: str, seconds: float) -> None:
        assert seconds >= 0
        told.append(what)

    gate = gate_of(Moderator(failures=9), wait_s=0.0, took=took)
    with pytest.raises(Unjudged):
        await gate.request("a fight", [], MEDIUM, stay)
    await gate_of(Moderator(), took=took).output("results/1", MEDIUM, stay)
    assert told == ["request", "output"]


async def test_a_moderator_is_asked_so_much_at_a_time_and_no_task_ends_while_it_answers() -> None:
    asked, most = 0, 0

    async def slow(what: str) -> Scores:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        try:
            await asyncio.sleep(0.02)
        finally:
            asked -= 1
        return {}

    # All together take ten times as long as a call, or a wait for nothing, may.
    gate = gate_of(Moderator(), slow, call_s=0.1, wait_s=0.1, calls=Calls(2))
    reasons = await asyncio.gather(*(gate.request(str(n), [], MEDIUM, stay) for n in range(100)))
    assert reasons == [[]] * 100
    assert most == 2


@pytest.mark.parametrize("key", ["unjudged/t/1/clip.mp4", "unjudged/t/1/picture.png"])
async def test_a_call_that_waits_for_its_turn_is_left_by_a_process_that_shuts_down(key: str) -> None:
    moderator = Moderator()
    gate = gate_of(moderator, moderator.hang, call_s=3600, video_call_s=3600, calls=Calls(1), video_calls=Calls(1))
    first = asyncio.create_task(gate.output(key, MEDIUM, stay))
    while not (gate.calls.is_full or gate.video_calls.is_full):
        await asyncio.sleep(0)
    with pytest.raises(Leaving):
        await gate.output(key, MEDIUM, lambda: True)
    first.cancel()


async def test_who_came_first_is_first_however_long_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.moderation.gate._LOOK_EVERY_S", 0.05)
    order: list[str] = []
    free = asyncio.Event()

    async def held(what: str) -> Scores:
        order.append(what)
        await free.wait()
        return {}

    gate = gate_of(Moderator(), held, calls=Calls(1))
    waiting = []
    for name in ("holds", "early", "gives up", "late"):
        waiting.append(asyncio.create_task(gate.request(name, [], MEDIUM, stay)))
        await asyncio.sleep(0.02)  # looks of theirs fall between each other
    waiting[2].cancel()
    free.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["holds", "early", "late"]
    assert not gate.calls.is_full


async def test_a_preview_does_not_wait_for_a_place() -> None:
    moderator = Moderator()
    gate = gate_of(moderator, moderator.hang, call_s=3600, calls=Calls(1))
    first = asyncio.create_task(gate.request("x", [], MEDIUM, stay))
    while not gate.calls.is_full:
        await asyncio.sleep(0)
    assert await gate.preview("unjudged/t/1/preview-1.jpeg", MEDIUM) is None
    first.cancel()


async def test_one_call_that_fails_waits_as_long_as_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = 0

    async def partly(what: str) -> Scores:
        nonlocal answered
        if what == "bad" and answered < 100:
            raise ConnectionError
        answered += 1
        return {}

    monkeypatch.setattr("serve_app.moderation.gate._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("serve_app.moderation.gate._LONGEST_PAUSE_S", 0.01)
    gate = gate_of(Moderator(), partly, wait_s=0.5)

    async def others() -> None:
        while answered < 100:
            await gate.request("good", [], MEDIUM, stay)
            await asyncio.sleep(0.01)

    assert (await asyncio.gather(gate.request("bad", [], MEDIUM, stay), others()))[0] == []
