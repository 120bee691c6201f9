"""Plays dispatcher and models for a service that runs neither."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from deployments.contract.events import Preview
from deployments.contract.job import RESULTS, GenerationJob, Output, media_type
from deployments.contract.objects import ObjectStore
from serve_app.accounts.api_key_auth import Caller, Callers
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, CreditStore
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.roles import Role
from serve_app.config.settings import Settings
from serve_app.dispatcher.attempt import build_result
from serve_app.dispatcher.maintenance import Maintenance
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.storage import connection
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.result import GenerationResult
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status, Task

T = TypeVar("T")

QUEUE = "flux3-klein"
"""Queue of `IMAGE_ENDPOINT`."""
IMAGE_ENDPOINT = "gen-3-image-klein"


class Worker:
    """Leases tasks, advances them, stores results and ends them when a test says so."""

    def __init__(self, settings: Settings) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.redis = connection.connect(settings.redis_url)
        prefix = settings.redis.prefix
        self.tasks = TaskStore(self.redis, prefix, settings.tasks.limits(), at_rest=settings.at_rest())
        self.keys = KeyStore(self.redis, prefix)
        self.projects = ProjectStore(self.redis, prefix)
        self.organizations = OrganizationStore(self.redis, prefix)
        self.credits = CreditStore(self.redis, prefix)
        self.objects = ObjectStore(settings.objects_url)
        self._leases: dict[str, Lease] = {}
        self.present(True)

    def present(self, here: bool) -> None:
        """Makes the service believe that a dispatcher runs, or that none does."""
        if here:
            self._command("SET", "dispatcher", 1)
        else:
            self._command("DEL", "dispatcher")

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(step)

    def _command(self, command: str, key: str, *more: Any) -> Any:
        """Runs a Redis command; `key` lacks the service's prefix."""

        async def ask() -> Any:
            return await self.redis.execute_command(command, f"{self.tasks.prefix}{key}", *more)

        return self.run(ask())

    async def reservations(self) -> list[str]:
        """Returns the ids of tasks that have an expiry."""
        ids: list[Any] = await self.redis.zrange(f"{self.tasks.prefix}retention", 0, -1)
        return ids

    def expires_at(self, task_id: str) -> float:
        """Returns when an ended task expires, in epoch seconds."""
        return float(self._command("ZSCORE", "retention", task_id)) / 1000

    def has(self, key: str) -> bool:
        """Returns whether Redis has a key, named without the service's prefix."""
        return bool(self._command("EXISTS", key))

    def close(self) -> None:
        self.run(self.redis.aclose())
        self._runner.close()

    def new_key(
        self,
        project: str,
        role: Role = Role.DEVELOPER,
        organization: str = DEFAULT_ORGANIZATION,
        expires: float | None = None,
    ) -> str:
        created = self.keys.create("contract", project, role=role, organization=organization, expires=expires)
        return self.run(created)[1]

    def caller(self, secret: str) -> Caller | None:
        """Returns the service's caller for a key."""
        return self.run(Callers(self.redis, self.tasks.prefix).authenticate(secret))

    def new_organization(self, credits: float) -> str:
        organization = f"organization-{uuid.uuid4().hex}"
        assert self.run(self.organizations.create(organization, organization, "test"))
        self.run(self.credits.grant(organization, "start", round(credits * 1000), "test"))
        return organization

    def new_project(self, organization: str) -> str:
        project = f"project-{uuid.uuid4().hex}"
        assert self.run(self.projects.create(project, organization, "test"))
        return project

    def new_finetune(self, project: str) -> str:
        """Registers an adapter of the image endpoint without the check, which takes seconds."""
        registry = FinetuneRegistry(self.redis, self.tasks.prefix)

        async def register() -> str:
            finetune = await registry.begin("ink", project, IMAGE_ENDPOINT, QUEUE)
            return (await registry.finish(finetune, rank=4, layers=1, size=1)).id

        return self.run(register())

    def set_project(self, project_id: str, **changes: Any) -> None:
        self.run(self.projects.change(Project(project_id), changes, "test"))

    def take(self, task_id: str) -> Lease:
        """Leases the task, and all tasks queued before it."""
        if task_id not in self._leases:
            for lease in self.run(self.tasks.lease(self._queue(task_id), 10_000, 100_000)):
                self._leases[lease.id] = lease
        return self._leases[task_id]

    def advance(self, task_id: str, status: Status, **fields: Any) -> None:
        attempt = self.take(task_id).attempt
        assert self.run(self.tasks.advance(self._queue(task_id), task_id, attempt, status, **fields))

    def end(self, task_id: str, status: Status, **outcome: Any) -> None:
        attempt = self.take(task_id).attempt
        assert self.run(self.tasks.complete(self._queue(task_id), task_id, attempt, status, **outcome))

    def show_preview(self, task_id: str, data: bytes, step: int, steps: int) -> None:
        key = f"previews/{task_id}/{step}.jpeg"
        self.run(self.objects.put(key, data, "image/jpeg"))
        preview = Preview(key, step, steps)
        self.advance(task_id, Status.GENERATING, progress=step / steps, preview=preview)

    def deliver(self, task_id: str, data: bytes, extension: str = "jpeg", thumbnail: bytes | None = None) -> str:
        """Ends a task with this image and thumbnail, as the dispatcher does. Returns the image's key."""
        lease = self.take(task_id)
        payload = TaskPayload.decode(lease.payload)
        key = f"results/{task_id}/{lease.attempt}/image.{extension}"
        self.run(self.objects.put(key, data, f"image/{extension}"))
        times: dict[str, Any] = {"start_time": 1_700_000_000.5, "end_time": 1_700_000_002.0, "duration": 1.5}
        small = None if thumbnail is None else f"results/{task_id}/{lease.attempt}/thumbnail.jpeg"
        if small is not None and thumbnail is not None:
            self.run(self.objects.put(small, thumbnail, "image/jpeg"))
        request, warnings = payload.request, list(payload.warnings)
        result = GenerationResult(key=key, prompt=request.prompt, seed=request.seed, thumbnail=small, **times)
        details = {"warnings": warnings} if warnings else None
        self.end(task_id, Status.READY, result=result, details=details)
        return key

    def deliver_files(self, task_id: str, files: dict[str, bytes]) -> None:
        """Ends a task with several results, by their names, as a workflow does."""
        generation = self.generation(task_id)
        outputs = list[Output]()
        for name, data in files.items():
            key = f"{generation.output_prefix}/{name}"
            self.run(self.objects.put(key, data, media_type(name)))
            outputs.append(Output(key, media_type(name), 0, 0, len(data)))
        output = replace(outputs[0], more=tuple(outputs[1:]))
        self.end(task_id, Status.READY, result=build_result(generation.request, output, took_s=1.5))

    def deliver_video(self, task_id: str, data: bytes, latents: bytes | None = None) -> None:
        """Ends a task with this video and, for a draft, its latents."""
        generation = self.generation(task_id)
        key, draft = f"{generation.output_prefix}/video.mp4", f"{generation.output_prefix}/draft.safetensors"
        self.run(self.objects.put(key, data, "video/mp4"))
        if latents is not None:
            self.run(self.objects.put(draft, latents, "application/octet-stream"))
        draft_key = None if latents is None else draft
        request = generation.request
        output = Output(key, "video/mp4", request.width, request.height, len(data), draft_key)
        self.end(task_id, Status.READY, result=build_result(request, output, took_s=1.5))

    def sweep(self) -> None:
        """Deletes expired tasks, as the dispatcher does every few seconds."""
        self.run(Maintenance(self.tasks, self.objects, []).drop_tasks())

    def job(self, task_id: str) -> dict[str, Any]:
        """Returns the fields of the task's payload, request and inputs by name."""
        payload = TaskPayload.decode(self._task(task_id).payload)
        records = (payload.request, payload.inputs, payload)
        return {name: getattr(record, name) for record in records for name in record.__slots__}

    def generation(self, task_id: str) -> GenerationJob:
        """Returns the job that the model gets."""
        lease = self.take(task_id)
        payload = TaskPayload.decode(lease.payload)
        prefix = f"{RESULTS}{lease.id}/{lease.attempt}"
        return GenerationJob(lease.id, lease.attempt, payload.request, prefix, payload.inputs, payload.adapter)

    def _queue(self, task_id: str) -> str:
        return self._task(task_id).queue

    def _task(self, task_id: str) -> Task:
        task = self.run(self.tasks.reads.get(task_id))
        assert task is not None
        return task
