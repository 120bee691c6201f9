"""How the webhook of a task fares, as its project sees it."""

from __future__ import annotations

import json

import pytest
from support.client import HOOK, HOOK_HOST, Client, refusal
from support.hooked_tasks import deliveries, ended, replay, send
from support.http_service import Service
from support.promises import promise
from support.website import Website
from support.worker import Worker

from serve_app.inputs.url_guard import receiver_of

# What is told.


@promise("Decided: webhooks", "written to a durable outbox in the same step that makes the task terminal")
def test_it_waits_from_the_end_on(client: Client, worker: Worker) -> None:
    task_id = ended(client, worker, HOOK)
    told = deliveries(client, task_id)
    (task,) = client.get("/v1/tasks").json()["tasks"]
    assert told == {
        "id": task_id,
        "receiver": receiver_of(HOOK),
        "state": "waiting",
        "next": task["finished"],
        "attempts": [],
    }


@promise("Decided: webhooks", "Deliveries and attempts can be listed and replayed by the operator.")
def test_a_delivery_and_its_attempt(client: Client, worker: Worker, service: Service, hook: Website) -> None:
    hook.put("/done", "danke schön".encode(), 200)
    task_id = ended(client, worker, hook.url("/done"))
    send(service)
    told = deliveries(client, task_id)
    (attempt,) = told.pop("attempts")
    assert told == {"id": task_id, "receiver": receiver_of(hook.url("/done")), "state": "delivered", "next": None}
    assert attempt.pop("at") > 1_700_000_000
    assert 0 <= attempt.pop("took_s") < 60
    assert attempt == {"status": 200, "error": None, "response": "danke schön"}


@promise("Decided: webhooks", "2xx within 15 s is success; anything else (3xx too) is retried")
def test_a_refusal_is_told_and_the_next_try_too(
    client: Client, worker: Worker, service: Service, hook: Website
) -> None:
    hook.put("/done", b"x" * 5000, 404)
    task_id = ended(client, worker, hook.url("/done"))
    send(service)
    told = deliveries(client, task_id)
    (attempt,) = told["attempts"]
    assert (told["state"], attempt["status"], attempt["response"]) == ("waiting", 404, "x" * 1024)
    assert told["next"] == pytest.approx(attempt["at"] + 3600, abs=60)


def test_what_was_given_up_is_failed(client: Client, worker: Worker, service: Service, hook: Website) -> None:
    hook.put("/done", status=410)
    task_id = ended(client, worker, hook.url("/done"))
    send(service)
    told = deliveries(client, task_id)
    assert (told["state"], told["next"], len(told["attempts"])) == ("failed", None, 1)


def test_a_receiver_that_is_not_there_has_no_status(
    client: Client, worker: Worker, service: Service, hook: Website
) -> None:
    task_id = ended(client, worker, f"http://{HOOK_HOST}:1/")
    send(service)
    (attempt,) = deliveries(client, task_id)["attempts"]
    assert (attempt["status"], attempt["error"], attempt["response"]) == (None, "the connection was refused", None)


@promise(
    "Events",
    "The service sends a webhook notification to `webhook_url` (when supplied in the submission) when a task "
    "has a result.",
)
def test_a_cancelled_task_is_told_of_too(client: Client, service: Service, hook: Website) -> None:
    task_id = client.accepted(webhook_url=hook.url("/done"))
    assert client.delete(f"/v1/tasks/{task_id}").status_code == 200
    send(service)
    assert deliveries(client, task_id)["state"] == "delivered"
    [(_, body)] = hook.received
    assert json.loads(body)["details"] == {"error": "Cancelled by the client"}


# Sending again.
@promise("Decided: webhooks", "Deliveries and attempts can be listed and replayed by the operator.")
def test_what_was_delivered_can_be_sent_again(client: Client, worker: Worker, service: Service, hook: Website) -> None:
    task_id = ended(client, worker, hook.url("/done"))
    send(service)
    answer = replay(client, task_id)
    assert answer.status_code == 200
    assert answer.json() == deliveries(client, task_id)
    assert answer.json()["state"] == "waiting"
    assert len(answer.json()["attempts"]) == 1
    send(service)
    assert deliveries(client, task_id)["state"] == "delivered"
    assert [headers["webhook-id"] for headers, _ in hook.received] == [task_id] * 2


def test_what_was_given_up_can_be_sent_again(client: Client, worker: Worker, service: Service, hook: Website) -> None:
    hook.put("/done", status=410)
    task_id = ended(client, worker, hook.url("/done"))
    send(service)
    hook.put("/done", status=204)
    assert replay(client, task_id).json()["state"] == "waiting"
    send(service)
    told = deliveries(client, task_id)
    assert (told["state"], [attempt["status"] for attempt in told["attempts"]]) == ("delivered", [410, 204])


def test_there_is_nothing_to_send_before_the_end(client: Client) -> None:
    task_id = client.accepted(webhook_url=HOOK)
    assert "not ended" in refusal(replay(client, task_id), 409)
    assert deliveries(client, task_id)["state"] == "not due"


# Who may.
def test_tasks_of_others_and_unknown_ones_look_the_same(
    client: Client, other_client: Client, worker: Worker, service: Service
) -> None:
    foreign = ended(other_client, worker, HOOK)
    with service.unchanged():
        for task_id in (foreign, "none"):
            for response in (client.get(f"/v1/tasks/{task_id}/deliveries"), replay(client, task_id)):
                assert refusal(response, 404) == "There is no such task"
    assert deliveries(other_client, foreign)["state"] == "waiting"


def test_what_one_organization_calls_is_another_receiver_than_what_another_calls(
    client: Client, service: Service
) -> None:
    def receiver(task_id: str) -> str:
        task = service.worker.run(service.worker.tasks.get(task_id))
        assert task is not None
        assert task.webhook is not None
        return task.webhook.receiver

    with service.client(organization=service.worker.new_organization(100)) as stranger:
        ours, ours_too, theirs = (
            receiver(each.accepted(webhook_url=url))
            for each, url in ((client, HOOK), (client, f"{HOOK}/elsewhere"), (stranger, HOOK))
        )
    assert ours == ours_too != theirs
