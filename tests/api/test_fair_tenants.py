"""Whatever one organization asks for, the tasks of two others take their turns by their own shares."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.client import Client
from support.http_service import Service, running
from support.worker import LANE, Worker

from serve_app.accounts.roles import MEMBER_ROLES, Role
from serve_app.tasks.limits import TaskSettings
from serve_app.tasks.task import Status

MANY = 1_000_000
MOST_STEPS = 16
"""Of one task: each is of one megapixel, so this is its work."""
PROJECTS = "/v1/admin/projects"

Act: TypeAlias = tuple[str, Any]
"""What the first organization does, and with what."""

extremes = st.sampled_from([5e-324, 1e-300, 0.01, 0.5, 1, 100, 1000, 1e308, None])
changes = st.fixed_dictionaries(
    {},
    optional={
        "weight": extremes,
        "max_active": st.sampled_from([0, 1, 24, MANY, None]),
        "statuses": st.sampled_from(["full", "basic", None]),
        "closed": st.booleans(),
        "limit_day": st.sampled_from([0, 5, 1e12, None]),
    },
)
acts: st.SearchStrategy[Act] = st.one_of(
    st.tuples(st.just("change"), changes),
    st.tuples(st.sampled_from(["new project", "new key", "member", "submit", "cancel", "erase"]), st.integers(0, 7)),
)
rounds = st.tuples(st.lists(acts, max_size=4), st.integers(1, MOST_STEPS), st.integers(1, MOST_STEPS))
"""What the first organization does, then the steps of a task of each of the others; then one task is leased."""


@dataclass
class Administrator:
    """Of the first organization: does what it is told, and takes no for an answer."""

    client: Client
    open_until: ExitStack
    projects: list[str]
    submitters: list[Client]
    tasks: list[tuple[Client, str]] = field(default_factory=list)

    def do(self, act: Act) -> None:
        what, given = act
        client = self.client
        match what:
            case "change":
                responses = [client.patch(f"{PROJECTS}/{project}", json=given) for project in self.projects]
            case "new project":
                project = f"project-{uuid.uuid4().hex}"
                responses = [client.post(PROJECTS, json={"id": project})]
                self.projects.append(project)
                self._new_key(project, Role.ADMINISTRATOR)
            case "new key":
                responses = [self._new_key(self.projects[given % len(self.projects)], Role.DEVELOPER)]
            case "member":
                role = MEMBER_ROLES[given % len(MEMBER_ROLES)]
                responses = [client.put(f"/v1/admin/members/person-{given}", json={"role": role})]
            case "erase":
                project = self.projects[given % len(self.projects)]
                responses = [client.post(f"{PROJECTS}/{project}/erasure", json={"project": project})]
            case "submit":
                submitter = self.submitters[given % len(self.submitters)]
                responses = [submitter.submit(width=1024, height=1024, steps=given + 1) for _ in range(2)]
                self.tasks += [(submitter, each.json()["id"]) for each in responses if each.is_success]
            case _:
                taken = [self.tasks[given % len(self.tasks)]] if self.tasks else []
                responses = [submitter.delete(f"/v1/tasks/{task_id}") for submitter, task_id in taken]
        assert all(response.status_code < 500 for response in responses), act

    def _new_key(self, project: str, role: Role) -> Any:
        made = self.client.post("/v1/admin/keys", json={"name": "k", "project": project, "role": role})
        secret = made.json()["key"]
        submitter = Client(str(self.client.base_url), project, secret)
        self.submitters.append(self.open_until.enter_context(submitter))
        return made


@dataclass
class Waiting:
    """The tasks of the other two organizations that wait, by their ids: whose, and their work."""

    work: dict[str, tuple[int, int]]

    def of(self, organization: int) -> bool:
        return any(whose == organization for whose, _ in self.work.values())


@pytest.fixture(scope="module")
def crowded(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without bounds on numbers, so that the queue alone decides."""
    tasks = TaskSettings(max_queued=MANY, max_active=MANY, requests_per_s=MANY, burst=MANY, lease_s=3600)
    with running(tmp_path_factory.mktemp("crowded"), redis_url, repository, tasks=tasks) as service:
        yield service


def lease(worker: Worker) -> str | None:
    """Whose turn it is; the task is ended at once."""
    leases = worker.run(worker.tasks.lease(LANE, 1, MANY))
    for each in leases:
        assert worker.run(worker.tasks.complete(LANE, each.id, each.attempt, Status.ERROR))
    return leases[0].id if leases else None


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(played=st.lists(rounds, min_size=2, max_size=8))
def test_no_organization_changes_the_order_of_two_others(
    crowded: Service, played: list[tuple[list[Act], int, int]]
) -> None:
    worker = crowded.worker
    with ExitStack() as stack:

        def newcomer(role: Role = Role.DEVELOPER) -> Client:
            organization = worker.new_organization(credits=10_000)
            return stack.enter_context(crowded.client(role=role, organization=organization))

        first, others = newcomer(Role.ADMINISTRATOR), (newcomer(), newcomer())
        administrator = Administrator(first, stack, [first.project], [first])
        waiting, served = Waiting({}), [0, 0]

        def submit(whose: int, steps: int) -> None:
            task_id = others[whose].accepted(width=1024, height=1024, steps=steps)
            waiting.work[task_id] = (whose, steps)

        def serve() -> bool:
            task_id = lease(worker)
            whose, work = waiting.work.pop(task_id or "", (0, 0))
            served[whose] += work
            if waiting.of(0) and waiting.of(1):
                assert abs(served[0] - served[1]) <= 2 * MOST_STEPS
            return task_id is not None

        for whose in (0, 1):
            submit(whose, MOST_STEPS)
        for done, *steps in played:
            for act in done:
                administrator.do(act)
            for whose, each in enumerate(steps):
                submit(whose, each)
            serve()
        while serve():
            pass
        assert not waiting.work
