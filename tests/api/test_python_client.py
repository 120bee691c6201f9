"""The published Python client, with and without asyncio, against the service, also on bad networks."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
import safetensors.torch
import torch
from gen_serve_client import (
    Client,
    FieldProblem,
    GenServeError,
    InsufficientCredits,
    InvalidRequest,
    Moderated,
    NotInTime,
    OutOfReach,
    Refused,
    Retries,
    TaskFailed,
    TaskNotFound,
    TooManyRequests,
    UnexpectedAnswer,
)
from support import http_client as plain
from support.faulty_transport import RESPONSE_LOST, UNREACHABLE, Fault, FaultyTransport, ProxyResponse
from support.http_service import Service, StartService
from support.images import image_file
from support.python_clients import Connect
from support.website import Website
from support.worker import Worker

from serve_app.config.settings import TaskSettings
from serve_app.tasks.task import Status

ENDPOINT = "gen-3-image-klein"
STAR = {"prompt": "a red star"}
IMAGE = image_file(form="JPEG")


def in_thread(step: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Runs a step of the worker, whose event loop is not that of an asyncio client."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(step, *args, **options).result()


def list_ids(client: plain.Client) -> list[str]:
    return [task["id"] for task in client.get("/v1/tasks").json()["tasks"]]


def test_generate_saves_the_file_of_a_prompt(
    gen: Client, worker: Worker, client: plain.Client, network: FaultyTransport, tmp_path: Path
) -> None:
    def deliver(request: httpx2.Request) -> None:
        if request.url.path == "/v1/get_result":
            in_thread(worker.deliver, request.url.params["id"], IMAGE)

    network.before = deliver
    result = gen.generate(ENDPOINT, prompt="a red star", seed=7)
    assert result.id == list_ids(client)[0]
    assert (result.facts["seed"], result.cost, result.warnings) == (7, 0.9, ())
    network.before = lambda _: None
    assert result.content() == IMAGE
    assert result.save(tmp_path / "star.jpeg").read_bytes() == IMAGE
    polls = [request for request in network.requests if request.url.path == "/v1/get_result"]
    assert [float(poll.url.params["wait"]) for poll in polls] == [20.0], "one long poll"


def test_progress_is_reported_while_waiting(gen: Client, worker: Worker) -> None:
    events: list[tuple[str, float | None]] = []

    def record_progress(task: Any) -> None:
        events.append((task["status"], task["progress"]))
        if task["status"] == "Pending":
            in_thread(worker.advance, task["id"], Status.GENERATING, progress=0.5)
        elif task["status"] == "Generating":
            in_thread(worker.deliver, task["id"], IMAGE)

    gen.generate(ENDPOINT, prompt="a red star", progress=record_progress)
    assert events == [("Pending", None), ("Generating", 0.5), ("Ready", 1.0)]


def test_expired_link_is_replaced(gen: Client, worker: Worker) -> None:
    task_id = gen.submit(ENDPOINT, STAR)["id"]
    worker.deliver(task_id, IMAGE)
    result = gen.wait(task_id)
    link = httpx2.URL(result.url)
    result.facts["sample"] = str(link.copy_set_param("sig", "old"))
    assert result.content() == IMAGE


@pytest.mark.parametrize(
    ("status", "details", "reason"),
    [
        (Status.ERROR, None, "no reason is given"),
        (Status.ERROR, {"error": "no memory left"}, "no memory left"),
        (Status.CONTENT_MODERATED, {"Moderation Reasons": ["violence", "hate"]}, "violence, hate"),
    ],
)
def test_failed_task_raises_its_reason(
    gen: Client, worker: Worker, status: Status, details: dict[str, Any] | None, reason: str
) -> None:
    task_id = gen.submit(ENDPOINT, STAR)["id"]
    worker.end(task_id, status, details=details)
    with pytest.raises(TaskFailed if status is Status.ERROR else Moderated) as failed:
        gen.wait(task_id)
    assert (failed.value.task_id, failed.value.details) == (task_id, details or {})
    assert str(failed.value) == f"{status.value}: {reason}"
    if isinstance(failed.value, Moderated):
        assert failed.value.reasons == ("violence", "hate")


def test_timed_out_task_can_be_waited_for_again(gen: Client, worker: Worker) -> None:
    task_id = gen.submit(ENDPOINT, STAR)["id"]
    with pytest.raises(NotInTime) as late:
        gen.wait(task_id, timeout_s=0.05)
    assert isinstance(late.value, TimeoutError)
    assert str(late.value) == f"task {task_id} has not ended within 0.05 s; it goes on"
    worker.deliver(task_id, IMAGE)
    assert gen.wait(task_id, timeout_s=0).id == task_id


def test_only_unfinished_task_can_be_cancelled(gen: Client, worker: Worker) -> None:
    waiting, ended = (gen.submit(ENDPOINT, STAR)["id"] for _ in range(2))
    worker.end(ended, Status.ERROR)
    assert gen.cancel(waiting)["status"] == "Error"
    with pytest.raises(Refused) as refused:
        gen.cancel(ended)
    assert (refused.value.status, refused.value.detail) == (409, "The task has already ended: Error")
    unknown = str(uuid.uuid4())
    assert gen.poll(unknown)["status"] == "Task not found"
    for call in (gen.wait, gen.cancel):
        with pytest.raises(TaskNotFound) as missing:
            call(unknown)
        assert missing.value.task_id == unknown


def test_tasks_are_listed_by_page_and_filter(gen: Client, worker: Worker) -> None:
    tasks = [gen.submit(ENDPOINT, STAR)["id"] for _ in range(3)]
    worker.end(tasks[0], Status.ERROR)
    first = gen.tasks(limit=2)
    second = gen.tasks(limit=2, cursor=first["next"])
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == tasks[::-1]
    assert [task["id"] for task in gen.tasks(statuses=["Error"], endpoint=ENDPOINT, since=0)["tasks"]] == tasks[:1]
    assert {task["id"] for task in gen.tasks(active=True)["tasks"]} == set(tasks[1:])


def make_lora() -> bytes:
    """Returns an adapter of one layer of the bundled base."""
    layer = "transformer.single_transformer_blocks.0.attn.to_q"
    return safetensors.torch.save(
        {f"{layer}.lora_A.weight": torch.ones(4, 128), f"{layer}.lora_B.weight": torch.ones(128, 4)}
    )


def test_adapter_upload_that_may_have_arrived_is_not_repeated(
    gen: Client, network: FaultyTransport, tmp_path: Path
) -> None:
    file = tmp_path / "ink.safetensors"
    file.write_bytes(make_lora())
    uploaded = gen.upload_finetune(file, ENDPOINT, "ink")
    assert (uploaded["name"], uploaded["size"]) == ("ink", file.stat().st_size)
    assert gen.finetunes() == [uploaded]
    assert gen.delete_finetune(uploaded["finetune_id"])["deleted_finetune_id"] == uploaded["finetune_id"]
    assert gen.finetunes() == []
    before = len(network.requests)
    network.faults = [UNREACHABLE, RESPONSE_LOST]
    with pytest.raises(OutOfReach):
        gen.upload_finetune(file, ENDPOINT, "ink")
    assert len(network.requests) - before == 2
    assert [finetune["name"] for finetune in gen.finetunes()] == ["ink"]


def test_insufficient_credits_are_an_error_of_their_own(connect_to: Connect, service: Service) -> None:
    organization = service.worker.new_organization(credits=0.1)
    key = service.worker.new_key(service.worker.new_project(organization), organization=organization)
    with pytest.raises(InsufficientCredits) as refused:
        connect_to(service.base_url, key).generate(ENDPOINT, prompt="a red star")
    assert str(refused.value) == "HTTP 402: Insufficient credits"


def test_every_problem_has_its_field(gen: Client) -> None:
    with pytest.raises(InvalidRequest) as refused:
        gen.submit(ENDPOINT, {"steps": 17})
    by_field = {problem.field: (problem.kind, problem.message) for problem in refused.value.problems}
    assert by_field.keys() == {"body.prompt", "body.steps"}
    assert by_field["body.prompt"] == ("missing", "Field required")
    assert "body.prompt: Field required" in str(refused.value)


def test_long_retry_after_is_raised(connect_to: Connect, start_service: StartService) -> None:
    service = start_service(tasks=TaskSettings(requests_per_s=0.01, burst=1))
    with service.client() as holder:
        gen = connect_to(service.base_url, holder.secret)
        gen.submit(ENDPOINT, STAR)
        with pytest.raises(TooManyRequests, match="Too many requests") as refused:
            gen.submit(ENDPOINT, STAR)
    assert refused.value.retry_after_s is not None
    assert 30 < refused.value.retry_after_s <= 100


def test_other_services_and_invalid_addresses_are_errors(connect_to: Connect, web: Website) -> None:
    web.set_page("/v1/credits", b"<html>")
    gen = connect_to(web.url("", "127.0.0.1"), "secret")
    with pytest.raises(UnexpectedAnswer, match="is no gen-serve service"):
        gen.credits()
    for address in ("", "localhost:8000", "ftp://host", "http://", "http://host:port"):
        with pytest.raises(ValueError, match="is no address"):
            connect_to(address, "")


# Bad networks


def reject(status: int) -> ProxyResponse:
    return ProxyResponse(status, '{"detail": "not now"}', {"retry-after": "0"})


@pytest.mark.parametrize(
    "faults",
    [
        [RESPONSE_LOST, RESPONSE_LOST, UNREACHABLE],
        [reject(503)],
        [RESPONSE_LOST, reject(500), reject(429)],
        [reject(409), RESPONSE_LOST],
    ],
    ids=["lost", "unavailable", "several", "in work"],
)
def test_retried_submission_makes_one_task(
    gen: Client, client: plain.Client, network: FaultyTransport, faults: list[Fault]
) -> None:
    network.faults = list(faults)
    submitted = gen.submit(ENDPOINT, STAR)
    assert list_ids(client) == [submitted["id"]]
    assert len(network.requests) == len(faults) + 1
    assert len({request.headers["idempotency-key"] for request in network.requests}) == 1


def test_submissions_with_one_key_make_one_task(gen: Client, client: plain.Client) -> None:
    assert gen.submit(ENDPOINT, STAR)["id"] != gen.submit(ENDPOINT, STAR)["id"]
    once = str(uuid.uuid4())
    assert gen.submit(ENDPOINT, STAR, once) == gen.submit(ENDPOINT, STAR, idempotency_key=once)
    assert len(list_ids(client)) == 3


def test_waiting_survives_a_bad_network(gen: Client, worker: Worker, network: FaultyTransport) -> None:
    task_id = gen.submit(ENDPOINT, STAR)["id"]
    worker.deliver(task_id, IMAGE)
    network.faults = [UNREACHABLE, RESPONSE_LOST, reject(503), ProxyResponse(502, "<html>")]
    result = gen.wait(task_id)
    network.faults = [RESPONSE_LOST]
    assert result.content() == IMAGE


def test_last_failure_is_raised(connect_to: Connect, service: Service, network: FaultyTransport) -> None:
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


def test_key_stays_with_the_service(gen: Client, client: plain.Client, web: Website, network: FaultyTransport) -> None:
    elsewhere = web.set_page("/image.jpeg", IMAGE).replace(web.host, "127.0.0.1")
    assert gen.fetch(elsewhere) == IMAGE
    assert gen.credits() > 0
    assert [request.headers.get("x-key") for request in network.requests] == [None, client.secret]


def test_redirects_are_not_followed(gen: Client, web: Website, network: FaultyTransport) -> None:
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
def test_errors_can_be_pickled(problem: GenServeError) -> None:
    again = pickle.loads(pickle.dumps(problem))
    assert type(again) is type(problem)
    assert (str(again), vars(again)) == (str(problem), vars(problem))
