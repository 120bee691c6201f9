"""Loads on a scripted server, sent from this process and from several."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from itertools import accumulate
from typing import Any

import pytest
from gen_serve_bench.adapters import Target, prepare_adapter
from gen_serve_bench.generator import GeneratorFailed, WorkerLoad, generate, run
from gen_serve_bench.outcomes import Outcome
from gen_serve_bench.workload import Endpoint, Load, LoadRequest, Mix, Shape, Size, Tenant
from support.http_service import serving
from support.scripted_server import Act, ScriptedServer

TENANTS = [Tenant(name="a"), Tenant(name="b", traffic=2)]
LOAD = Load(
    Mix(endpoints=[Endpoint(endpoint="gen-any", references=1)], tenants=TENANTS), "a mix", 1, pattern="constant"
)


def requests(*moments: float, shape: Shape = Shape(Size(128, 64), steps=4)) -> list[LoadRequest]:  # noqa: B008
    return [LoadRequest(n, moment, "gen-any", shape, "a", "a star", 7 + n) for n, moment in enumerate(moments)]


def target(base_url: str = "http://127.0.0.1:9", **changes: Any) -> Target:
    keys = {"a": "key of a", "b": "key of b"}
    return Target(**{"base_url": base_url, "keys": keys, "limit": 60, "poll_every": 0.01} | changes)


async def ends(adapter: str, *acts: Act) -> tuple[ScriptedServer, list[Outcome]]:
    server, outcomes = ScriptedServer(*acts), list[Outcome]()
    with serving(server.app) as base_url:
        for request in requests(*[0.0] * len(acts)):  # one by one, so that the server gets them in order
            outcomes += (await generate(target(base_url, adapter=adapter), WorkerLoad([request])))[0]
    return server, outcomes


async def test_gen_adapter_classifies_every_outcome() -> None:
    acts: tuple[Act, ...] = ("serve", "refuse", "break", "fail", "moderate", "no id", "no json", "no result")
    server, outcomes = await ends("gen", *acts)
    assert [(one.end, one.reason) for one in outcomes] == [
        ("served", ""),
        ("refused", "HTTP 429"),
        ("failed", "HTTP 500"),
        ("failed", "Error"),
        ("failed", "Content Moderated"),
        ("failed", "unusable answer: a submission without id and polling_url"),
        ("failed", "unusable answer: no JSON"),
        ("failed", "unusable answer: Ready without a result"),
    ]
    good = outcomes[0]
    assert (good.task_id, good.polls) == ("0", 2)
    assert good.sent is not None
    assert good.started is not None
    assert good.sent <= (good.acknowledged or 0) <= (good.final or 0)
    assert good.ended == pytest.approx(good.started + 0.02)
    assert server.bodies[0] == {"prompt": "a star", "seed": 7, "width": 128, "height": 64, "steps": 4}
    assert {headers["x-key"] for headers in (*server.headers, *server.poll_headers)} == {"key of a"}


async def test_openai_adapter_classifies_every_outcome() -> None:
    server, outcomes = await ends("openai", "serve", "refuse", "no id", "no json", "no result")
    assert [(one.end, one.reason) for one in outcomes] == [
        ("served", ""),
        ("refused", "HTTP 429"),
        ("failed", "unusable answer: data has not one image"),
        ("failed", "unusable answer: no JSON"),
        ("failed", "unusable answer: b64_json is no image"),
    ]
    expected = {"model": "gen-any", "prompt": "a star", "n": 1, "seed": 7, "size": "128x64", "num_inference_steps": 4}
    assert server.bodies[0] == expected
    assert server.headers[0]["authorization"] == "Bearer key of a"


@pytest.mark.parametrize(
    ("shape", "message"), [(Shape(references=1), "references can't be sent"), (Shape(seconds=5), "makes no videos")]
)
def test_unsupported_shape_is_rejected_before_sending(shape: Shape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_adapter(target(adapter="openai"), WorkerLoad(requests(0.0, shape=shape)).kinds)


async def test_endless_task_is_lost_and_missing_server_fails() -> None:
    with serving(ScriptedServer("forget").app) as base_url:
        [lost], _ = await generate(target(base_url, limit=0.3), WorkerLoad(requests(0.0)))
    [failed], _ = await generate(target(), WorkerLoad(requests(0.0)))
    assert (lost.end, lost.reason, failed.end, failed.reason) == ("lost", "never seen to end", "failed", "ConnectError")


async def test_open_loop_sends_without_waiting() -> None:
    stop, server = asyncio.Event(), ScriptedServer("forget")
    with serving(server.app) as base_url:
        sending = asyncio.create_task(generate(target(base_url), WorkerLoad(requests(0, 0.01, 3600)), stop=stop))
        async with asyncio.timeout(60):
            while len(server.bodies) < 2:
                await asyncio.sleep(0.01)
        stop.set()
        outcomes, _ = await sending
    assert [(one.number, one.end) for one in outcomes] == [(0, "interrupted"), (1, "interrupted")]


async def test_closed_loop_keeps_its_concurrency() -> None:
    server = ScriptedServer("serve", "refuse")
    with serving(server.app) as base_url:
        [worker] = WorkerLoad.split(LOAD.closed_loop(3, 20), 1)
        outcomes, _ = await generate(target(base_url), worker)
    assert [one.number for one in outcomes] == list(range(20))
    moments = sorted([(one.sent or 0, 1) for one in outcomes] + [(one.final or one.sent or 0, -1) for one in outcomes])
    assert max(accumulate(change for _, change in moments)) <= 3
    with serving(server.app) as base_url:
        timed, _ = await generate(target(base_url), WorkerLoad(requests(0, 0), concurrency=2, seconds=0.5, total=2))
    assert len(timed) > 4
    assert len({one.number for one in timed}) == len(timed)


def test_processes_send_every_request_once() -> None:
    server, plan, numbers = ScriptedServer("serve", "refuse", "serve", "fail"), LOAD.at(40), list[int]()
    with serving(server.app) as base_url:
        result = run(target(base_url), plan, 3, lambda outcome: numbers.append(outcome.number))
    assert [one.number for one in result.outcomes] == sorted(numbers) == list(range(40))
    assert Counter(one.end for one in result.outcomes) == {"served": 20, "refused": 10, "failed": 10}
    assert Counter(body["seed"] for body in server.bodies) == Counter(each.seed for each in plan.requests)
    keys = Counter(headers["x-key"] for headers in server.headers)
    assert keys == Counter(f"key of {each.tenant}" for each in plan.requests)
    assert len(result.worker_stats) == 3
    assert all(one.sent is not None and one.sent > one.intended - 0.005 for one in result.outcomes), "sent early"


def test_ctrl_c_keeps_the_results_so_far() -> None:
    with serving(ScriptedServer().app) as base_url:
        result = run(target(base_url), LOAD.closed_loop(2, 10**4), 2, lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert result.interrupted is not None
    assert 0 < len(result.outcomes) < 10**4
    assert len(result.worker_stats) == 2


def test_dead_process_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen_serve_bench.generator._send", os.abort)
    with pytest.raises(GeneratorFailed, match="ended before its share was done"):
        run(target(), LOAD.at(1))
