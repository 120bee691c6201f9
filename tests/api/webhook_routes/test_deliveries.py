"""How the webhook of a task fares, as its project sees it."""

from __future__ import annotations

import pytest
from support.delivery_routes import deliveries, end_task, replay, send
from support.http_client import HOOK, HOOK_HOST, Client, refusal
from support.http_service import Service
from support.promises import promise
from support.website import Website
from support.worker import Worker

from serve_app.inputs.ssrf import parse_destination


@promise("Decided: webhooks", "written to a durable outbox in the same step that makes the task terminal")
def test_it_waits_from_the_end_on_and_not_before(client: Client, worker: Worker) -> None:
    task_id = end_task(client, worker, HOOK)
    early = client.create_task(webhook_url=HOOK)
    assert "unfinished" in refusal(replay(client, early), 409)
    assert deliveries(client, early)["state"] == "not due"
    finished = {task["id"]: task["finished"] for task in client.get("/v1/tasks").json()["tasks"]}
    expected = {
        "id": task_id,
        "destination": parse_destination(HOOK),
        "state": "waiting",
        "next": finished[task_id],
        "attempts": [],
    }
    assert deliveries(client, task_id) == expected


@promise("Decided: webhooks", "Deliveries and attempts can be listed and replayed by the operator.")
def test_a_delivery_is_told_with_its_attempts_and_can_be_sent_again(
    client: Client, worker: Worker, service: Service, hook: Website
) -> None:
    hook.set_page("/done", "danke schön".encode(), 200)
    task_id = end_task(client, worker, hook.url("/done"))
    send(service)
    delivery = deliveries(client, task_id)
    (attempt,) = delivery.pop("attempts")
    assert delivery == {
        "id": task_id,
        "destination": parse_destination(hook.url("/done")),
        "state": "delivered",
        "next": None,
    }
    assert attempt.pop("at") > 1_700_000_000
    assert 0 <= attempt.pop("took_s") < 60
    assert attempt == {"status": 200, "error": None, "response": "danke schön"}
    answer = replay(client, task_id)
    assert answer.json() == deliveries(client, task_id)
    assert (answer.status_code, answer.json()["state"], len(answer.json()["attempts"])) == (200, "waiting", 1)
    send(service)
    assert deliveries(client, task_id)["state"] == "delivered"
    assert [headers["webhook-id"] for headers, _ in hook.received] == [task_id] * 2


@promise("Decided: webhooks", "2xx within 15 s is success; anything else (3xx too) is retried")
def test_a_refusal_is_told_and_the_next_try_too(
    client: Client, worker: Worker, service: Service, hook: Website
) -> None:
    hook.set_page("/done", b"x" * 5000, 404)
    task_id = end_task(client, worker, hook.url("/done"))
    nobody = end_task(client, worker, f"http://{HOOK_HOST}:1/")
    send(service)
    delivery = deliveries(client, task_id)
    (attempt,) = delivery["attempts"]
    assert (delivery["state"], attempt["status"], attempt["response"]) == ("waiting", 404, "x" * 1024)
    assert delivery["next"] == pytest.approx(attempt["at"] + 3600, abs=60)
    (attempt,) = deliveries(client, nobody)["attempts"]
    assert (attempt["status"], attempt["error"], attempt["response"]) == (None, "the connection was refused", None)


def test_what_was_given_up_is_failed_and_can_be_sent_again(
    client: Client, worker: Worker, service: Service, hook: Website
) -> None:
    hook.set_page("/done", status=410)
    task_id = end_task(client, worker, hook.url("/done"))
    send(service)
    delivery = deliveries(client, task_id)
    assert (delivery["state"], delivery["next"], len(delivery["attempts"])) == ("failed", None, 1)
    hook.set_page("/done", status=204)
    assert replay(client, task_id).json()["state"] == "waiting"
    send(service)
    delivery = deliveries(client, task_id)
    assert (delivery["state"], [attempt["status"] for attempt in delivery["attempts"]]) == ("delivered", [410, 204])


def test_tasks_of_others_and_unknown_ones_look_the_same(
    client: Client, other_client: Client, worker: Worker, service: Service
) -> None:
    foreign = end_task(other_client, worker, HOOK)
    with service.assert_unchanged():
        for task_id in (foreign, "none"):
            for response in (client.get(f"/v1/tasks/{task_id}/deliveries"), replay(client, task_id)):
                assert refusal(response, 404) == "Task not found"


def test_what_one_organization_calls_is_another_destination_than_what_another_calls(
    client: Client, service: Service
) -> None:
    def destination(who: Client, url: str) -> str:
        task = service.worker.run(service.worker.tasks.reads.get(who.create_task(webhook_url=url)))
        assert task is not None
        assert task.webhook is not None
        return task.webhook.destination

    with service.client(organization=service.worker.new_organization(100)) as stranger:
        assert destination(client, HOOK) == destination(client, f"{HOOK}/elsewhere") != destination(stranger, HOOK)
