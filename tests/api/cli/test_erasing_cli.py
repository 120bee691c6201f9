"""The command that erases what a project has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.command_line import GenServe
from support.tasks import new_task

from serve_app.redis_store import connection
from serve_app.tasks.store import TaskStore


@pytest.fixture
def task_id(redis_url: str, prefix: str, acme: str) -> str:
    """Of a task of the project `shop`."""

    async def submitted() -> str:
        redis = connection.connect(redis_url)
        try:
            task = new_task(project="shop", organization=acme, price=100)
            await TaskStore(redis, prefix).submit(task)
            return task.id
        finally:
            await redis.aclose()

    return asyncio.run(submitted())


def test_a_project_is_erased_and_the_proof_printed(
    gen_serve: GenServe, task_id: str, kept: Callable[[], dict[bytes, bytes]], prefix: str
) -> None:
    ran = gen_serve("projects", "erase", "acme", "shop", "--confirm", "shop")
    assert ran.code == 0
    first, *table = ran.out.splitlines()
    assert first.startswith("shop: asked for at ")
    assert "by command line" in first
    assert table[1].split() == ["tasks", "1"]
    assert table[-1] == "2 entries of the ledger stay, which are books: amounts, times and ids"
    assert f"{prefix}task:{task_id}".encode() not in kept()
    assert gen_serve("projects", "erase", "acme", "shop", "--confirm", "shop").out == ran.out
    opened = gen_serve("projects", "set", "shop", "--open")
    assert (opened.code, "closed" in opened.out) == (0, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("acme", "shop", "--confirm", "shoe"), "nothing was erased"),
        (("default", "shop", "--confirm", "shop"), "there is no project shop in default"),
        (("acme", "nowhere", "--confirm", "nowhere"), "there is no project nowhere"),
    ],
)
def test_nothing_is_erased_by_mistake(
    gen_serve: GenServe,
    task_id: str,
    kept: Callable[[], dict[bytes, bytes]],
    prefix: str,
    words: tuple[str, ...],
    message: str,
) -> None:
    before = kept()
    ran = gen_serve("projects", "erase", *words)
    assert ran.code == 2
    assert message in ran.err
    # How fast a key sends is forgotten by itself.
    assert kept().keys() >= {key for key in before if b":rate:" not in key}
    assert f"{prefix}erasure:shop".encode() not in kept()
