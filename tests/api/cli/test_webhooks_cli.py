"""The commands that look at deliveries and have them made again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from io import StringIO
from typing import TypeAlias, TypeVar

import pytest
from support.command_line import A_MINUTE, GenServe, Ran
from support.deliveries import one_ended

from serve_app.encryption import SealingSettings
from serve_app.storage import connection
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import DeliveryAttempt, Outbox, Outcome, State

T = TypeVar("T")

Webhooks: TypeAlias = Callable[..., Ran]

RECEIVER = "https://hooks.test:443"
SECRET = "a secret, sealed or not, is nobody's business"


@dataclass(frozen=True)
class Deliveries:
    """What there is to look at."""

    redis_url: str
    prefix: str

    def do(self, step: Callable[[TaskStore, Outbox], Awaitable[T]]) -> T:
        async def done() -> T:
            redis = connection.connect(self.redis_url)
            try:
                return await step(TaskStore(redis, self.prefix), Outbox(redis, self.prefix))
            finally:
                await redis.aclose()

        return asyncio.run(done())

    def waiting(self, n: int = 1) -> list[str]:
        """The ids of tasks that have just ended, the oldest first."""

        async def end(store: TaskStore, outbox: Outbox) -> list[str]:
            return [await one_ended(store, "https://hooks.test/x", secret=SECRET) for _ in range(n)]

        return self.do(end)

    def attempted(self, outcome: Outcome, attempt: DeliveryAttempt, n: int = 1) -> list[str]:
        """The same, after one attempt each."""
        ids = self.waiting(n)

        async def record(store: TaskStore, outbox: Outbox) -> None:
            while claims := await outbox.claim(n):
                for claim in claims:
                    await outbox.record(claim, attempt, outcome, wait_s=3600)

        self.do(record)
        return ids

    def states(self, ids: list[str]) -> list[State]:
        async def read(store: TaskStore, outbox: Outbox) -> list[State]:
            found = [await outbox.get(task_id) for task_id in ids]
            return [delivery.state for delivery in found if delivery is not None]

        return self.do(read)


@pytest.fixture
def deliveries(redis_url: str, prefix: str) -> Deliveries:
    return Deliveries(redis_url, prefix)


@pytest.fixture
def webhooks(gen_serve: GenServe) -> Webhooks:
    """Runs one of their commands."""
    return lambda *words: gen_serve("webhooks", *words)


# Looking.


def test_deliveries_are_listed_with_how_they_fare(webhooks: Webhooks, deliveries: Deliveries) -> None:
    [delivered] = deliveries.attempted("delivered", DeliveryAttempt(1.0, 204))
    [failed] = deliveries.attempted("failed", DeliveryAttempt(1.0, error="could not connect"))
    [retried] = deliveries.attempted("retry", DeliveryAttempt(1.0, 503, text="later"))
    [fresh] = deliveries.waiting()
    rows = {row[0]: row[1:] for row in webhooks("list").table}
    assert rows[delivered] == [RECEIVER, "delivered", "1", "HTTP 204"]
    assert rows[failed] == [RECEIVER, "failed", "1", "could not connect"]
    assert rows[retried][:-1] == [RECEIVER, "waiting", "1", "HTTP 503"]
    assert rows[fresh][:-1] == [RECEIVER, "waiting", "0"]
    for waiting in (retried, fresh):
        assert A_MINUTE.fullmatch(rows[waiting][-1])
    assert webhooks("list", "--failed").ids == [failed]


@pytest.mark.parametrize("failed", [False, True])
def test_longer_lists_go_on_where_the_page_before_ended(
    webhooks: Webhooks, deliveries: Deliveries, failed: bool
) -> None:
    ids = deliveries.attempted("failed", DeliveryAttempt(1.0, 500), n=5) if failed else deliveries.waiting(5)
    options = ("--failed",) if failed else ()
    listed, words = [], ["list", "--limit", "2", *options]
    for left in (3, 1, 0):
        ran = webhooks(*words)
        listed += ran.ids
        *_, last = ran.out.splitlines()
        if left:
            prompt, _, cursor = last.rpartition(" ")
            assert prompt == " ".join(("more: gen-serve webhooks list", *options, "--cursor"))
            words = ["list", "--limit", "2", *options, "--cursor", cursor]
        else:
            assert not last.startswith("more")
    assert sorted(listed) == sorted(ids)


def test_no_secret_is_shown(webhooks: Webhooks, deliveries: Deliveries) -> None:
    deliveries.waiting()
    assert SECRET not in webhooks("list").out


# Sending again.


def test_named_deliveries_are_sent_again(webhooks: Webhooks, deliveries: Deliveries) -> None:
    ids = deliveries.attempted("failed", DeliveryAttempt(1.0, 500), n=3) + deliveries.attempted(
        "delivered", DeliveryAttempt(1.0, 200)
    )
    ran = webhooks("replay", ids[0], ids[3])
    assert (ran.code, ran.out) == (0, "2 to be sent again\n")
    assert deliveries.states(ids) == [State.WAITING, State.FAILED, State.FAILED, State.WAITING]
    assert sorted(webhooks("list", "--failed").ids) == sorted(ids[1:3])


def test_all_that_were_given_up_are_sent_again_and_nothing_else(webhooks: Webhooks, deliveries: Deliveries) -> None:
    failed = deliveries.attempted("failed", DeliveryAttempt(1.0, 500), n=7)
    [delivered] = deliveries.attempted("delivered", DeliveryAttempt(1.0, 200))
    assert webhooks("replay", "--failed", "--yes").out == "7 to be sent again\n"
    assert set(deliveries.states(failed)) == {State.WAITING}
    assert deliveries.states([delivered]) == [State.DELIVERED]
    assert webhooks("list", "--failed").table == []
    assert webhooks("replay", "--failed").out == "0 to be sent again\n"


def test_those_of_every_project_are_sent_again_once_it_is_confirmed(
    webhooks: Webhooks, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = deliveries.attempted("failed", DeliveryAttempt(1.0, 500), n=3)
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    ran = webhooks("replay", "--failed")
    assert (ran.code, ran.out.strip()) == (1, "")
    assert "Send 3 webhooks of every project again (3 of p)?" in ran.err
    assert webhooks("replay", "--failed", "--project", "another").out == "0 to be sent again\n"
    assert set(deliveries.states(failed)) == {State.FAILED}
    assert webhooks("replay", "--failed", "--project", "p").out == "3 to be sent again\n"
    assert set(deliveries.states(failed)) == {State.WAITING}


def test_what_is_not_there_is_named_and_the_others_are_sent(webhooks: Webhooks, deliveries: Deliveries) -> None:
    [failed] = deliveries.attempted("failed", DeliveryAttempt(1.0, 500))
    ran = webhooks("replay", "nonsense", failed, "unheard-of")
    assert (ran.code, ran.out) == (1, "1 to be sent again\n")
    assert ran.err == "error: no delivery of nonsense, unheard-of\n"
    assert deliveries.states([failed]) == [State.WAITING]


# Mistakes and keys.


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["replay"], "name the ids of tasks"),
        (["replay", "x", "--failed"], "name the ids of tasks"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--limit", "1001"], "--limit"),
        (["list", "--cursor", "nonsense"], "cursor"),
        (["list", "surplus"], "surplus"),
        (["invent"], "invent"),
        (["new-key", "surplus"], "surplus"),
    ],
)
def test_wrong_usage_is_explained(webhooks: Webhooks, words: list[str], named: str) -> None:
    ran = webhooks(*words)
    assert (ran.code, ran.out) == (2, "")
    assert named in ran.err


def test_a_new_key_fits_the_settings_and_is_another_every_time(webhooks: Webhooks) -> None:
    keys = [webhooks("new-key").out.strip() for _ in range(2)]
    assert keys[0] != keys[1]
    settings = SealingSettings.model_validate({"keys": keys})
    assert [key.get_secret_value() for key in settings.keys] == keys
    assert not any(key in repr(settings) for key in keys)
