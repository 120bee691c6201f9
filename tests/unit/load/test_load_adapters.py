"""Each way to speak to a server, against one of which it is known what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.http_service import serving
from support.known_server import Act, KnownServer

from serve_app.load.adapters.answers import NotServed, until_ended
from serve_app.load.generator import generate, prepared
from serve_app.load.mix import Poll, Template
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.shape import Shape, Size
from serve_app.load.target import Target

SHAPE = Shape(Size(128, 64), steps=4)
TEMPLATE = Template(
    path="/jobs",
    headers={"authorization": "Key {key}"},
    body={"text": "{prompt}!", "size": ["{width}", "{height}"], "steps": "{steps}", "seed": "{seed}", "n": 1},
    good=[200, 202],
    result="output.0.url",
    poll=Poll(url="urls.get", status="status", done=["succeeded"], failed=["failed"]),
)


def requests(count: int, shape: Shape = SHAPE, **body: Any) -> list[Request]:
    return [Request(n, 0.02 * n, "gen-any", shape, "ann", "a star", 7 + n, Size(64, 64), body) for n in range(count)]


async def ends(adapter: Any, *acts: Act, template: Template | None = None) -> tuple[KnownServer, Sequence[Outcome]]:
    server = KnownServer(*acts)
    with serving(server.app) as base_url:
        target = Target(
            base_url=base_url, adapter=adapter, keys={"ann": "secret"}, limit=2, poll_every=0.01, template=template
        )
        outcomes: list[Outcome] = []
        # One after the other, so that the server takes them in their order.
        for request in requests(len(acts)):
            outcomes += (await generate(target, [request]))[0]
    return server, outcomes


def told(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    return [(one.end, one.reason) for one in outcomes]


async def test_the_dialect_tells_every_end_from_the_others() -> None:
    acts: tuple[Act, ...] = ("serve", "refuse", "break", "fail", "moderate", "no id", "no json", "no result")
    server, outcomes = await ends("gen", *acts)
    assert told(outcomes) == [
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
    assert good.polls == 2
    assert good.sent is not None
    assert good.acknowledged is not None
    assert good.final is not None
    assert good.started is not None
    assert good.sent <= good.acknowledged <= good.final
    assert good.ended == pytest.approx(good.started + 0.02)
    assert server.bodies[0] == {"prompt": "a star", "seed": 7, "width": 128, "height": 64, "steps": 4}
    assert {headers["x-key"] for headers in (*server.headers, *server.poll_headers)} == {"secret"}


async def test_an_accepted_task_that_never_ends_is_lost() -> None:
    server = KnownServer("forget")
    with serving(server.app) as base_url:
        target = Target(base_url=base_url, limit=0.3, poll_every=0.05)
        [outcome], _ = await generate(target, requests(1))
    assert (outcome.end, outcome.reason) == ("lost", "never seen to end")
    assert outcome.polls > 2
    assert outcome.acknowledged is not None


async def test_waiting_polls_ask_the_server_to_wait_and_begin_at_once() -> None:
    server = KnownServer()
    with serving(server.app) as base_url:
        [outcome], _ = await generate(Target(base_url=base_url, wait=1, poll_every=0.01), requests(1))
    assert outcome.served


async def test_openai_images_are_pictures_or_no_result() -> None:
    server, outcomes = await ends("openai", "serve", "refuse", "no id", "no json", "no result")
    assert told(outcomes) == [
        ("served", ""),
        ("refused", "HTTP 429"),
        ("failed", "unusable answer: data has not one picture"),
        ("failed", "unusable answer: no JSON"),
        ("failed", "unusable answer: b64_json is no picture"),
    ]
    assert outcomes[0].time_to_result
    assert outcomes[0].acknowledged is None
    assert server.bodies[0] == {
        "model": "gen-any",
        "prompt": "a star",
        "n": 1,
        "seed": 7,
        "size": "128x64",
        "num_inference_steps": 4,
    }
    assert server.headers[0]["authorization"] == "Bearer secret"


async def test_any_other_server_is_asked_by_a_template() -> None:
    acts: tuple[Act, ...] = ("serve", "refuse", "break", "fail", "no id", "no result")
    server, outcomes = await ends("http", *acts, template=TEMPLATE)
    assert told(outcomes) == [
        ("served", ""),
        ("refused", "HTTP 429"),
        ("failed", "HTTP 500"),
        ("failed", "failed"),
        ("failed", "unusable answer: no address at urls.get"),
        ("failed", "unusable answer: nothing at output.0.url"),
    ]
    assert server.bodies[0] == {"text": "a star!", "size": [128, 64], "steps": 4, "seed": 7, "n": 1}
    assert {headers["authorization"] for headers in (*server.headers, *server.poll_headers)} == {"Key secret"}
    assert outcomes[0].polls == 2


async def test_an_answer_can_be_the_result() -> None:
    template = Template(path="/v1/images/generations", body={"prompt": "{prompt}"}, result="data.0.b64_json")
    _, outcomes = await ends("http", "serve", "no id", template=template)
    assert told(outcomes) == [("served", ""), ("failed", "unusable answer: nothing at data.0.b64_json")]


@pytest.mark.parametrize(
    ("target", "shape", "said"),
    [
        (Target(base_url="http://a", adapter="http"), SHAPE, "http: the plain HTTP adapter needs this section"),
        (
            Target(base_url="http://a", adapter="http", keys={"ann": "b"}, template=TEMPLATE),
            Shape(),
            r"http: \{width\} stands in the template, and gen-any of the mix has none",
        ),
        (Target(base_url="http://a", adapter="openai"), Shape(references=1), "references can't be sent"),
        (Target(base_url="http://a", adapter="openai"), Shape(seconds=5), r"makes no videos \(seconds\)"),
    ],
)
def test_what_cannot_be_sent_is_told_before_anything_is(target: Target, shape: Shape, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        prepared(target, requests(1, shape))


async def test_a_task_is_followed_until_it_ends_or_the_time_is_up() -> None:
    outcome = Outcome.of(requests(1)[0])

    async def poll() -> bool:
        raise NotServed("failed", "Error")

    with pytest.raises(NotServed, match="Error"):
        await until_ended(poll, outcome, lambda: 1.0, 0.0)
    with pytest.raises(NotServed, match="never seen to end"):
        await until_ended(poll, outcome, lambda: 0.0, 0.0)
    assert outcome.polls == 1
