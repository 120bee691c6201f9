"""The published Python client on bad networks: one task, whatever happens, and a key that stays where it belongs."""

from __future__ import annotations

import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from gen_serve_client import (
    Client,
    FieldProblem,
    GenServeError,
    InvalidRequest,
    Moderated,
    NotInTime,
    OutOfReach,
    Refused,
    Retries,
    TaskNotFound,
    TooManyRequests,
    UnexpectedAnswer,
)
from support import http_client as plain
from support.faulty_transport import RESPONSE_LOST, UNREACHABLE, Fault, FaultyTransport, ProxyResponse
from support.http_service import Service
from support.images import image_file
from support.python_clients import Connect
from support.website import Gate, Website
from support.worker import Worker

ENDPOINT = "gen-3-image-klein"
STAR = {"prompt": "a red star"}
IMAGE = image_file(form="JPEG")


def ids(client: plain.Client) -> list[str]:
    return [task["id"] for task in client.get("/v1/tasks").json()["tasks"]]


def not_now(status: int) -> ProxyResponse:
    return ProxyResponse(status, '{"detail": "not now"}', {"retry-after": "0"})


@pytest.mark.parametrize(
    "faults",
    [
        [RESPONSE_LOST, RESPONSE_LOST, UNREACHABLE],
        [not_now(503)],
        [RESPONSE_LOST, not_now(500), not_now(429)],
        [not_now(409), RESPONSE_LOST],
    ],
    ids=["lost", "unavailable", "all-sorts", "in-work"],
)
def test_a_submission_makes_one_task(
    gen: Client, client: plain.Client, network: FaultyTransport, faults: list[Fault]
) -> None:
    network.faults = list(faults)
    submitted = gen.submit(ENDPOINT, STAR)
    assert ids(client) == [submitted["id"]]
    assert len(network.requests) == len(faults) + 1
    assert len({request.headers["idempotency-key"] for request in network.requests}) == 1


def test_two_submissions_make_two_tasks_unless_the_caller_says_they_are_one(gen: Client, client: plain.Client) -> None:
    assert gen.submit(ENDPOINT, STAR)["id"] != gen.submit(ENDPOINT, STAR)["id"]
    once = str(uuid.uuid4())
    assert gen.submit(ENDPOINT, STAR, once) == gen.submit(ENDPOINT, STAR, idempotency_key=once)
    assert len(ids(client)) == 3


def test_a_submission_in_work_is_asked_for_again(
    gen: Client, client: plain.Client, network: FaultyTransport, web: Website
) -> None:
    gate, once = Gate(), str(uuid.uuid4())
    body = {**STAR, "images": [web.set_page(f"/{once}", image_file(), gate=gate)]}

    def open_gate(response: httpx2.Response) -> None:
        if response.status_code == 409:
            gate.opened.set()

    network.after = open_gate
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, f"/v1/{ENDPOINT}", json=body, headers={"Idempotency-Key": once})
        try:
            assert gate.reached.wait(20)
            again = gen.submit(ENDPOINT, body, once)
        finally:
            gate.opened.set()
        assert again == first.result().json()
    assert ids(client) == [again["id"]]


def test_429_is_retried_as_often_as_the_caller_says(
    connect_to: Connect, service: Service, client: plain.Client, network: FaultyTransport
) -> None:
    gen = connect_to(service.base_url, client.secret, Retries(first_wait_s=0.001, too_many_tries=2))
    network.faults = [not_now(429), not_now(429)]
    with pytest.raises(TooManyRequests) as refused:
        gen.submit(ENDPOINT, STAR)
    assert (refused.value.retry_after_s, len(network.requests)) == (0.0, 2)
    network.faults = [not_now(429)]
    assert gen.submit(ENDPOINT, STAR)["id"] in ids(client)


def test_waits_over_a_bad_network(gen: Client, worker: Worker, network: FaultyTransport) -> None:
    task_id = gen.submit(ENDPOINT, STAR)["id"]
    worker.deliver(task_id, IMAGE)
    network.faults = [UNREACHABLE, RESPONSE_LOST, not_now(503), ProxyResponse(502, "<html>")]
    result = gen.wait(task_id)
    network.faults = [RESPONSE_LOST]
    assert result.content() == IMAGE


def test_gives_up_in_the_end(connect_to: Connect, service: Service, network: FaultyTransport) -> None:
    gen = connect_to(service.base_url, "", Retries(tries=3, first_wait_s=0.001))
    network.faults = [UNREACHABLE] * 3
    with pytest.raises(OutOfReach) as error:
        gen.credits()
    assert str(error.value) == f"{service.base_url} can't be reached: connection refused"
    assert (error.value.connected, error.value.status, len(network.requests)) == (False, None, 3)
    network.faults = [ProxyResponse(502, "Bad Gateway")] * 3
    with pytest.raises(OutOfReach) as error:
        gen.credits()
    assert (error.value.status, error.value.reason) == (502, "Bad Gateway")


def test_the_key_stays_with_the_service(
    gen: Client, client: plain.Client, web: Website, network: FaultyTransport
) -> None:
    elsewhere = web.set_page("/image.jpeg", IMAGE).replace(web.host, "127.0.0.1")
    assert gen.fetch(elsewhere) == IMAGE
    assert gen.credits() > 0
    assert [request.headers.get("x-key") for request in network.requests] == [None, client.secret]


def test_nobody_is_led_to_another_place(gen: Client, web: Website, network: FaultyTransport) -> None:
    network.faults = [ProxyResponse(307, headers={"location": web.url("/", "127.0.0.1")})]
    with pytest.raises(Refused) as refused:
        gen.credits()
    assert (refused.value.status, len(network.requests)) == (307, 1)


@pytest.mark.parametrize(
    "problem",
    [
        OutOfReach("http://host", "gone", 503, connected=True),
        UnexpectedAnswer("http://host", "/v1/credits"),
        TooManyRequests(429, "later", 5.0),
        InvalidRequest([FieldProblem("body.steps", "too many", "less_than_equal")]),
        Moderated({"id": "x", "status": "Request Moderated", "details": {"Moderation Reasons": ["violence"]}}),
        TaskNotFound("x"),
        NotInTime("x", 5.0),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_errors_survive_being_sent_elsewhere(problem: GenServeError) -> None:
    again = pickle.loads(pickle.dumps(problem))
    assert type(again) is type(problem)
    assert (str(again), vars(again)) == (str(problem), vars(problem))
