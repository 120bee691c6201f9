"""The commands that look at deliveries and have them made again."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import pytest

from serve_app import cli
from serve_app.config.settings import WebhookSettings
from serve_app.redis_store import connection
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status, Webhook
from serve_app.webhooks.outbox import Attempt, Outbox, Outcome, State

T = TypeVar("T")

RECEIVER = "https://hooks.test:443"
HEADING = ["id", "receiver", "state", "attempts", "last answer", "next try"]
A_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
SECRET = "a secret, sealed or not, is nobody's business"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def table(self) -> list[list[str]]:
        """The rows that it printed, without the heading. A cell that is empty is left out."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.out.splitlines()[1:]]

    @property
    def ids(self) -> list[str]:
        return [row[0] for row in self.table if not row[0].startswith("more: ")]


GenServe: TypeAlias = Callable[..., Ran]


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
            ids: list[str] = []
            for _ in range(n):
                ids.append(str(uuid.uuid4()))
                hook = Webhook("https://hooks.test/x", RECEIVER, "http://service.test", SECRET)
                task = NewTask(ids[-1], "p", "lane", "gen-test", "{}", 1.0, "{}", key_id=ids[-1], webhook=hook)
                await store.submit(task)
                [lease] = await store.lease("lane", "d", 1, 100)
                await store.complete("lane", ids[-1], lease.attempt, Status.READY)
            return ids

        return self.do(end)

    def attempted(self, outcome: Outcome, attempt: Attempt, n: int = 1) -> list[str]:
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
def gen_serve(
    redis_url: str,
    prefix: str,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> GenServe:
    """Runs a command on the service of these tests, in this process."""
    config = tmp_path / "config.yaml"
    settings = {
        "data_dir": str(tmp_path / "data"),
        "catalog": str(repository / "configs/catalog.yaml"),
        "redis": {"url": redis_url, "prefix": prefix},
    }
    config.write_text(json.dumps(settings))

    def run(*words: str) -> Ran:
        monkeypatch.setenv("GEN_CONFIG", str(config))
        monkeypatch.setattr("sys.argv", ["gen-serve", "webhooks", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        printed = capsys.readouterr()
        assert isinstance(code, int)
        assert bool(printed.err) == (code != 0), "errors go to stderr, and nothing else does"
        return Ran(code, printed.out, printed.err)

    return run


# Looking.


@pytest.mark.parametrize("options", [(), ("--failed",)])
def test_there_is_nothing_at_first(gen_serve: GenServe, options: tuple[str, ...]) -> None:
    ran = gen_serve("list", *options)
    assert (ran.code, ran.table) == (0, [])
    assert re.split(r"\s{2,}", ran.out.strip()) == HEADING


def test_deliveries_are_listed_with_how_they_fare(gen_serve: GenServe, deliveries: Deliveries) -> None:
    [delivered] = deliveries.attempted("delivered", Attempt(1.0, 204))
    [failed] = deliveries.attempted("failed", Attempt(1.0, error="could not connect"))
    [retried] = deliveries.attempted("retry", Attempt(1.0, 503, text="later"))
    [fresh] = deliveries.waiting()
    rows = {row[0]: row[1:] for row in gen_serve("list").table}
    assert rows[delivered] == [RECEIVER, "delivered", "1", "HTTP 204"]
    assert rows[failed] == [RECEIVER, "failed", "1", "could not connect"]
    assert rows[retried][:-1] == [RECEIVER, "waiting", "1", "HTTP 503"]
    assert rows[fresh][:-1] == [RECEIVER, "waiting", "0"]
    for waiting in (retried, fresh):
        assert A_MINUTE.fullmatch(rows[waiting][-1])
    assert gen_serve("list", "--failed").ids == [failed]


@pytest.mark.parametrize("failed", [False, True])
def test_longer_lists_go_on_where_the_page_before_ended(
    gen_serve: GenServe, deliveries: Deliveries, failed: bool
) -> None:
    ids = deliveries.attempted("failed", Attempt(1.0, 500), n=5) if failed else deliveries.waiting(5)
    options = ("--failed",) if failed else ()
    listed, words = [], ["list", "--limit", "2", *options]
    for left in (3, 1, 0):
        ran = gen_serve(*words)
        listed += ran.ids
        *_, last = ran.out.splitlines()
        if left:
            prompt, _, cursor = last.rpartition(" ")
            assert prompt == " ".join(("more: gen-serve webhooks list", *options, "--cursor"))
            words = ["list", "--limit", "2", *options, "--cursor", cursor]
        else:
            assert not last.startswith("more")
    assert sorted(listed) == sorted(ids)


def test_no_secret_is_shown(gen_serve: GenServe, deliveries: Deliveries) -> None:
    deliveries.waiting()
    assert SECRET not in gen_serve("list").out


# Sending again.


def test_named_deliveries_are_sent_again(gen_serve: GenServe, deliveries: Deliveries) -> None:
    ids = deliveries.attempted("failed", Attempt(1.0, 500), n=3) + deliveries.attempted("delivered", Attempt(1.0, 200))
    ran = gen_serve("replay", ids[0], ids[3])
    assert (ran.code, ran.out) == (0, "2 to be sent again\n")
    assert deliveries.states(ids) == [State.WAITING, State.FAILED, State.FAILED, State.WAITING]
    assert sorted(gen_serve("list", "--failed").ids) == sorted(ids[1:3])


def test_all_that_were_given_up_are_sent_again_and_nothing_else(gen_serve: GenServe, deliveries: Deliveries) -> None:
    failed = deliveries.attempted("failed", Attempt(1.0, 500), n=7)
    [delivered] = deliveries.attempted("delivered", Attempt(1.0, 200))
    assert gen_serve("replay", "--failed").out == "7 to be sent again\n"
    assert set(deliveries.states(failed)) == {State.WAITING}
    assert deliveries.states([delivered]) == [State.DELIVERED]
    assert gen_serve("list", "--failed").table == []
    assert gen_serve("replay", "--failed").out == "0 to be sent again\n"


def test_more_than_fit_on_a_page_are_sent_again(
    gen_serve: GenServe, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.cli.webhooks._PAGE", 2)
    failed = deliveries.attempted("failed", Attempt(1.0, 500), n=5)
    assert gen_serve("replay", "--failed").out == "5 to be sent again\n"
    assert set(deliveries.states(failed)) == {State.WAITING}


def test_what_is_not_there_is_named_and_the_others_are_sent(gen_serve: GenServe, deliveries: Deliveries) -> None:
    [failed] = deliveries.attempted("failed", Attempt(1.0, 500))
    ran = gen_serve("replay", "nonsense", failed, "unheard-of")
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
def test_wrong_usage_is_explained(gen_serve: GenServe, words: list[str], named: str) -> None:
    ran = gen_serve(*words)
    assert (ran.code, ran.out) == (2, "")
    assert named in ran.err


def test_the_group_has_help(gen_serve: GenServe) -> None:
    assert " webhooks [OPTIONS] COMMAND" in gen_serve("--help").out


def test_a_store_out_of_reach_is_an_error_and_no_traceback(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_REDIS__URL", "redis://127.0.0.1:1")
    ran = gen_serve("list")
    assert (ran.code, ran.err.count("\n")) == (1, 1)


def test_a_new_key_fits_the_settings_and_is_another_every_time(gen_serve: GenServe) -> None:
    keys = [gen_serve("new-key").out.strip() for _ in range(2)]
    assert keys[0] != keys[1]
    settings = WebhookSettings.model_validate({"keys": keys})
    assert [key.get_secret_value() for key in settings.keys] == keys
    assert not any(key in repr(settings) for key in keys)
