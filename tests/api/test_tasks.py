"""Tasks of a project: lists, filters, deletion, cancellation."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest
from redis import Redis
from support.http_client import Client, refusal
from support.http_service import Service
from support.images import image_file, to_base64
from support.payloads import RESULT, new_result
from support.promises import promise
from support.worker import Worker

from serve_app.api.routes.schemas import conceal_id
from serve_app.encryption import AtRest, new_key
from serve_app.tasks.task import Status


def list_ids(client: Client, **query: Any) -> list[str]:
    """Returns the ids of all pages."""
    ids: list[str] = []
    while True:
        page = client.get("/v1/tasks", params=query).json()
        assert set(page) == {"tasks", "next"}
        ids += [task["id"] for task in page["tasks"]]
        if page["next"] is None:
            return ids
        query["cursor"] = page["next"]


@promise("Decided: polling", "0.0 to 1.0, never falls; null when not known")
def test_list_shows_the_course_of_a_task(client: Client, worker: Worker) -> None:
    submitted = client.submit(prompt="a cat").json()
    (task,) = client.get("/v1/tasks").json()["tasks"]
    created = task.pop("created")
    assert created > 1_700_000_000
    assert task == {
        "id": submitted["id"],
        "endpoint": "gen-3-image-klein",
        "status": "Pending",
        "prompt": "a cat",
        "thumbnail": None,
        "progress": None,
        "attempt": 0,
        "started": None,
        "finished": None,
        "expires": None,
        "cost": None,
    }
    worker.advance(submitted["id"], Status.GENERATING, progress=0.5)
    worker.deliver(submitted["id"], image_file(form="JPEG"))
    (task,) = client.get("/v1/tasks").json()["tasks"]
    assert client.poll(submitted["id"]).json()["progress"] == 1.0
    assert created <= task["started"] <= task["finished"] < task["expires"]
    assert (task["status"], task["attempt"], task["cost"]) == ("Ready", 1, submitted["cost"])
    assert task["progress"] == 1.0


def test_list_shows_a_thumbnail_of_the_result(client: Client, worker: Worker) -> None:
    task_id, small = client.create_task(), image_file(16, 8, form="JPEG")
    worker.deliver(task_id, image_file(64, 32, form="JPEG"), thumbnail=small)
    (task,) = client.get("/v1/tasks").json()["tasks"]
    file = httpx2.get(task["thumbnail"], trust_env=False, timeout=60)
    assert (file.status_code, file.headers["content-type"], file.content) == (200, "image/jpeg", small)
    assert task["thumbnail"].startswith(str(client.base_url)), "on the origin of the request"
    assert "thumbnail" not in client.poll(task_id).json()["result"]


def test_thumbnail_of_a_running_task_is_its_preview(client: Client, worker: Worker) -> None:
    task_id, small = client.create_task(), image_file(16, 8, form="JPEG")
    worker.show_preview(task_id, small, step=1, steps=4)
    (task,) = client.get("/v1/tasks").json()["tasks"]
    assert httpx2.get(task["thumbnail"], trust_env=False, timeout=60).content == small
    worker.end(task_id, Status.CONTENT_MODERATED, details={"Moderation Reasons": ["violence"]})
    (task,) = client.get("/v1/tasks").json()["tasks"]
    assert task["thumbnail"] is None


def test_list_shortens_long_prompts_and_hides_unreadable_ones(client: Client, service: Service) -> None:
    task_id = client.create_task(prompt="long " * 1000)
    (task,) = client.get("/v1/tasks").json()["tasks"]
    assert task["prompt"] == ("long " * 100) + "…"
    with Redis.from_url(service.settings.redis_url) as redis:
        other = AtRest([new_key()], sealing=True)
        redis.hset(f"{service.settings.redis.prefix}task:{task_id}", "job", other.seal("{}"))
    (task,) = client.get("/v1/tasks").json()["tasks"]
    assert (task["id"], task["prompt"]) == (task_id, None)


def test_tasks_are_filtered_by_status(client: Client, worker: Worker) -> None:
    waiting, running, ended = (client.create_task() for _ in range(3))
    worker.advance(running, Status.GENERATING, progress=0.1)
    worker.end(ended, Status.ERROR)
    assert list_ids(client, status="Error") == [ended]
    assert set(list_ids(client, status=["Generating", "Pending"])) == {waiting, running}
    assert list_ids(client, status="Ready") == []
    assert set(list_ids(client, active=True)) == {waiting, running}
    assert set(list_ids(client, active="false")) == {waiting, running, ended}


def test_tasks_are_filtered_by_prompt(client: Client) -> None:
    star, moon = client.create_task(prompt="a Red star"), client.create_task(prompt="a moon")
    assert list_ids(client, prompt="red STAR") == [star]
    assert sorted(list_ids(client, prompt="a ", limit=1)) == sorted([star, moon])
    assert list_ids(client, prompt="sun") == []


def test_one_task_has_its_parameters_for_its_project(client: Client, other_client: Client) -> None:
    image = to_base64(image_file())
    task_id = client.submit(
        prompt="long " * 200, seed=7, aspect_ratio="1:1", resolution="768sq", images=[image]
    ).json()["id"]
    task = client.get(f"/v1/tasks/{task_id}").json()
    (listed,) = client.get("/v1/tasks").json()["tasks"]
    assert task | {"prompt": listed["prompt"]} == task | listed
    assert task["prompt"] == "long " * 200
    assert task["inputs"] == 1
    assert task["parameters"].items() >= {"width": 768, "height": 768, "seed": 7, "steps": 16}.items()
    assert refusal(other_client.get(f"/v1/tasks/{task_id}"), 404) == "Task not found"


def test_owner_deletes_ended_tasks(client: Client, other_client: Client, worker: Worker) -> None:
    ready, failed, waiting = (client.create_task() for _ in range(3))
    worker.deliver(ready, image_file(form="JPEG"))
    worker.end(failed, Status.ERROR)
    assert refusal(client.delete(f"/v1/tasks/{waiting}/result"), 409) == "The task is unfinished: cancel it first"
    assert refusal(other_client.delete(f"/v1/tasks/{ready}/result"), 404) == "Task not found"
    assert len(list_ids(client)) == 3
    for task_id in (ready, failed):
        assert client.delete(f"/v1/tasks/{task_id}/result").status_code == 204
    assert list_ids(client) == [waiting]
    now = time.time()
    assert worker.expires_at(ready) <= now + 1
    # A worker may still write files of a failed task, which are deleted later.
    assert now + 3000 < worker.expires_at(failed) < now + 4000
    assert client.delete(f"/v1/tasks/{ready}/result").status_code == 204
    assert worker.expires_at(failed) < now + 4000


def test_tasks_are_filtered_by_time(client: Client) -> None:
    tasks = [client.create_task() for _ in range(4)]
    created = {task["id"]: task["created"] for task in client.get("/v1/tasks").json()["tasks"]}
    moment = created[tasks[2]]
    assert set(list_ids(client, since=moment)) == {task for task in tasks if created[task] >= moment}
    assert list_ids(client, since=max(created.values()) + 1) == []
    assert sorted(list_ids(client, since=0, limit=3)) == sorted(tasks)


@pytest.mark.parametrize("limit", [3, 8])
def test_pages_have_every_task_once(client: Client, worker: Worker, limit: int) -> None:
    tasks = [client.create_task() for _ in range(8)]
    for task_id in tasks[::2]:
        worker.end(task_id, Status.ERROR)
    assert sorted(list_ids(client, limit=limit)) == sorted(tasks)
    assert sorted(list_ids(client, status="Error", limit=limit)) == sorted(tasks[::2])


def test_page_has_the_twenty_newest_tasks(client: Client) -> None:
    for _ in range(22):
        client.create_task()
    page = client.get("/v1/tasks").json()
    assert len(page["tasks"]) == 20
    times = [task["created"] for task in page["tasks"]]
    assert times == sorted(times, reverse=True)


@promise("Decided: polling", "Any non-terminal → `Error`.")
@pytest.mark.parametrize("phase", [Status.PENDING, Status.REASONING, Status.GENERATING])
def test_unfinished_task_can_be_cancelled(client: Client, worker: Worker, phase: Status) -> None:
    task_id = client.create_task()
    if phase is not Status.PENDING:
        worker.advance(task_id, phase)
    response = client.delete(f"/v1/tasks/{task_id}")
    assert response.status_code == 200
    body = response.json()
    assert body == client.poll(task_id).json(), "the same as polling"
    assert (body["status"], body["details"]) == ("Error", {"error": "Cancelled by the client"})
    assert "cost" not in body
    assert list_ids(client, active=True) == []


def test_cancelled_task_has_no_result(client: Client, worker: Worker) -> None:
    task_id = client.create_task()
    lease = worker.take(task_id)
    client.delete(f"/v1/tasks/{task_id}")
    assert not worker.run(worker.tasks.complete("flux3-klein", task_id, lease.attempt, Status.READY, result=RESULT))
    assert client.poll(task_id).json()["status"] == "Error"


@promise("Decided: polling", "A terminal status never changes")
@pytest.mark.parametrize("status", [Status.READY, Status.CONTENT_MODERATED])
def test_ended_task_cannot_be_cancelled(client: Client, worker: Worker, status: Status) -> None:
    task_id = client.create_task()
    worker.end(task_id, status, result=new_result("results/x/1/image.png") if status is Status.READY else None)
    before = client.poll(task_id).json()
    response = client.delete(f"/v1/tasks/{task_id}")
    assert refusal(response, 409) == f"The task has already ended: {status.value}"
    assert client.poll(task_id).json() == before


def test_administrator_sees_neither_prompts_nor_results(
    administrator: Client, service: Service, organization: str
) -> None:
    with service.client(organization=organization) as client:
        task_id = client.create_task(prompt="a secret of theirs")
        service.worker.deliver(task_id, image_file(form="JPEG"), thumbnail=b"small")
        # A search does not reveal the prompt either.
        query = {"project": client.project, "status": "Ready", "prompt": "something else"}
        (task,) = administrator.get("/v1/admin/tasks", params=query).json()["tasks"]
    assert (task["id"], task["prompt"], task["thumbnail"]) == (conceal_id(task_id), None, None)
