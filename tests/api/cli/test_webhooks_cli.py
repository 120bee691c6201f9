"""The commands of webhook deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import StringIO
from typing import TypeAlias

import pytest
from support.cli_runner import A_MINUTE, CommandResult, GenServe
from support.deliveries import end_one_task

from serve_app.encryption import SealingSettings
from serve_app.storage import connection
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import AttemptRecord, DeliveryOutcome, Outbox

Webhooks: TypeAlias = Callable[..., CommandResult]
EndTasks: TypeAlias = Callable[..., list[str]]

DESTINATION = "https://hooks.test:443"
SECRET = "a secret that no list shows"


@pytest.fixture
def end_tasks(redis_url: str, prefix: str) -> EndTasks:
    """Ends tasks, with one delivery attempt each if there is an outcome. Returns their ids, the oldest first."""

    def create(n: int = 1, outcome: DeliveryOutcome | None = None, attempt: AttemptRecord | None = None) -> list[str]:
        async def end() -> list[str]:
            redis = connection.connect(redis_url)
            store, outbox = TaskStore(redis, prefix), Outbox(redis, prefix)
            ids = [await end_one_task(store, "https://hooks.test/x", secret=SECRET) for _ in range(n)]
            while outcome and (claims := await outbox.claim(n)):
                for claim in claims:
                    await outbox.record(claim, attempt or AttemptRecord(1.0, 500), outcome, wait_s=3600)
            await redis.aclose()
            return ids

        return asyncio.run(end())

    return create


@pytest.fixture
def webhooks(gen_serve: GenServe) -> Webhooks:
    """Runs a command of webhooks."""
    return lambda *words: gen_serve("webhooks", *words)


def states(webhooks: Webhooks) -> dict[str, str]:
    return {row[0]: row[2] for row in webhooks("list").table}


def test_deliveries_are_listed_with_state_and_answer(webhooks: Webhooks, end_tasks: EndTasks) -> None:
    [delivered] = end_tasks(1, "delivered", AttemptRecord(1.0, 204))
    [failed] = end_tasks(1, "failed", AttemptRecord(1.0, error="could not connect"))
    [retried] = end_tasks(1, "retry", AttemptRecord(1.0, 503, text="later"))
    [fresh] = end_tasks()
    listed = webhooks("list")
    rows = {row[0]: row[1:] for row in listed.table}
    assert rows[delivered] == [DESTINATION, "delivered", "1", "HTTP 204"]
    assert rows[failed] == [DESTINATION, "failed", "1", "could not connect"]
    assert rows[retried][:-1] == [DESTINATION, "waiting", "1", "HTTP 503"]
    assert rows[fresh][:-1] == [DESTINATION, "waiting", "0"]
    for waiting in (retried, fresh):
        assert A_MINUTE.fullmatch(rows[waiting][-1])
    assert SECRET not in listed.out
    assert webhooks("list", "--failed").ids == [failed]


@pytest.mark.parametrize("options", [(), ("--failed",)])
def test_next_page_follows_the_cursor(webhooks: Webhooks, end_tasks: EndTasks, options: tuple[str, ...]) -> None:
    ids = end_tasks(3, "failed" if options else None)
    first = webhooks("list", "--limit", "2", *options)
    prompt, _, cursor = first.out.splitlines()[-1].rpartition(" ")
    assert prompt == " ".join(("more: gen-serve webhooks list", *options, "--cursor"))
    rest = webhooks("list", "--limit", "2", *options, "--cursor", cursor)
    assert "more" not in rest.out
    assert sorted(first.ids + rest.ids) == sorted(ids)


def test_named_deliveries_are_replayed(webhooks: Webhooks, end_tasks: EndTasks) -> None:
    failed, other = end_tasks(2, "failed")
    [delivered] = end_tasks(1, "delivered")
    result = webhooks("replay", failed, delivered)
    assert (result.code, result.out) == (0, "2 will be sent again\n")
    assert states(webhooks) == {failed: "waiting", other: "failed", delivered: "waiting"}
    result = webhooks("replay", "nonsense", other, "unheard-of")
    assert (result.code, result.out) == (1, "1 will be sent again\n")
    assert result.err == "error: no delivery of nonsense, unheard-of\n"
    assert states(webhooks)[other] == "waiting"


def test_failed_deliveries_are_replayed_after_a_confirmation(
    webhooks: Webhooks, end_tasks: EndTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = end_tasks(3, "failed")
    [delivered] = end_tasks(1, "delivered")
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    result = webhooks("replay", "--failed")
    assert (result.code, result.out.strip()) == (1, "")
    assert "Send 3 webhooks of every project again (3 of p)?" in result.err
    assert webhooks("replay", "--failed", "--project", "another").out == "0 will be sent again\n"
    assert sorted(webhooks("list", "--failed").ids) == sorted(failed)
    assert webhooks("replay", "--failed", "--project", "p").out == "3 will be sent again\n"
    assert states(webhooks) == dict.fromkeys(failed, "waiting") | {delivered: "delivered"}
    more = end_tasks(2, "failed")
    assert webhooks("replay", "--failed", "--yes").out == f"{len(more) + len(failed)} will be sent again\n"
    assert webhooks("replay", "--failed").out == "0 will be sent again\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("replay", "give ids of tasks"),
        ("replay x --failed", "give ids of tasks"),
        ("list --limit 0", "--limit"),
        ("list --limit 1001", "--limit"),
        ("list --cursor nonsense", "cursor"),
        ("new-key surplus", "surplus"),
    ],
)
def test_invalid_argument_of_webhooks_is_named(webhooks: Webhooks, words: str, expected: str) -> None:
    result = webhooks(*words.split())
    assert (result.code, result.out) == (2, "")
    assert expected in result.err


def test_new_key_is_valid_and_unique(webhooks: Webhooks) -> None:
    keys = [webhooks("new-key").out.strip() for _ in range(2)]
    assert keys[0] != keys[1]
    settings = SealingSettings.model_validate({"keys": keys})
    assert [key.get_secret_value() for key in settings.keys] == keys
