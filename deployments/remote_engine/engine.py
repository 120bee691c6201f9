"""A remote engine in place of the step engine: runs a replica's jobs on inference servers over HTTP.

Servers keep jobs and results in memory, which may be lost. So a result is stored as soon as it is done, and a job that
a server lost is interrupted for another attempt. If the server still has a video, that attempt resumes it: its address
and id are in the video's checkpoint object.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from PIL import Image

from deployments.backend import JobError, Unavailable
from deployments.backends.inputs import InputFetcher
from deployments.contract.events import Done, Event, Interrupted, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.model import COMFYUI, EngineConfig
from deployments.contract.objects import UNREACHABLE, ObjectStore
from deployments.contract.workflow import Workflow
from deployments.engine.cost_model import StepCost
from deployments.engine.requests import DEADLINE_PASSED, Health, Milestone, RequestHandle, fail
from deployments.engine.scheduler import NO_COSTS
from deployments.images import fit, open_image
from deployments.outputs import Outputs
from deployments.remote_engine.client import (
    EngineBusy,
    EngineClient,
    EngineLost,
    EngineRefused,
    Files,
    JobClient,
    JobStatus,
    PreviewImage,
)
from deployments.remote_engine.servers import ServerPool
from deployments.remote_engine.workflow_results import store_workflow_results
from deployments.video import reader
from deployments.video.writer import VideoFileError, command

logger = logging.getLogger(__name__)

T = TypeVar("T")

ENGINE_LOST: Final = Interrupted("the inference server lost this request", blame=False)
ENGINE_DOWN: Final = Interrupted("the inference server is out of reach", blame=False, counts=False)
ENGINE_REFUSED: Final = Interrupted("the inference server refuses the requests of this service", blame=False)
_POLL_S: Final = 0.5
_RUNS_ON_S: Final = 600.0
"""Seconds after which a server no longer counts as working on a job that it could not abort."""
_MAX_ESTIMATE: Final = 0.95
"""Upper bound of estimated progress, for servers that report none."""
_PREVIEW_S: Final = 1.0
"""Seconds between previews of a job."""
_ABANDONED_S: Final = 15.0
"""Seconds for which a video or workflow without a caller waits for another attempt, such as after a dispatcher died."""


@dataclass(slots=True)
class ReportedProgress:
    """Progress of a job by its server, or else by its usual duration."""

    expected_s: float
    """Usual duration; 0 if unknown."""
    running_since: float | None
    """Seconds of the monotonic clock; None while the job waits in the server's queue."""
    share: float = 0.0
    """Progress that the server reports, 0 to 1; 0 if it reports none."""

    def update(self, status: JobStatus) -> None:
        if status.state != "waiting" and self.running_since is None:
            self.running_since = time.monotonic()
        self.share = max(self.share, status.progress)

    def at(self, now: float) -> float:
        if self.share or self.running_since is None or not self.expected_s:
            return self.share
        return min((now - self.running_since) / self.expected_s, _MAX_ESTIMATE)


class DeviceShare:
    """Device seconds of a job that shares the servers: elapsed time divided by the number of jobs, integrated."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs = 0
        self._share_s = 0.0
        """Device seconds of a job that runs all the time."""
        self._updated_at = clock()

    def start(self) -> float:
        """Starts a job. Returns the mark to pass to `since`."""
        self._update()
        self._jobs += 1
        return self._share_s

    def since(self, mark: float) -> float:
        self._update()
        return self._share_s - mark

    def stop(self) -> None:
        self._update()
        self._jobs -= 1

    def _update(self) -> None:
        now = self._clock()
        if self._jobs:
            self._share_s += (now - self._updated_at) / self._jobs
        self._updated_at = now


class RemoteEngine:
    """Runs jobs in place of `Engine`. `start` and `submit` belong to the replica's event loop."""

    def __init__(
        self, config: EngineConfig, store: ObjectStore, *, max_running: int, workflow: Workflow | None = None
    ) -> None:
        """Starts the command, if any, and waits until it is healthy. Raises RuntimeError."""
        self._config = config
        self._store, self._outputs, self._fetcher = store, Outputs(store), InputFetcher(store)
        self._slots = asyncio.Semaphore(max_running)
        self.health = Health(time.monotonic)
        self._share = DeviceShare()
        self._pace: dict[bool, float] = {}
        """Seconds per unit of work (pixels of all frames times steps); the key is True for videos."""
        self._previewed_at: WeakKeyDictionary[RequestHandle, float] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[RequestHandle, asyncio.Task[None]] = {}
        self._running_on: dict[RequestHandle, asyncio.Task[Image.Image]] = {}
        """Requests of ended jobs that their server can't abort, which keep their slots."""
        self._pool = ServerPool(config, workflow, self.health)

    @property
    def setup(self) -> Mapping[str, str]:
        return {"family": self._config.kind, "servers": self._pool.description}

    @property
    def counts(self) -> Mapping[str, float]:
        return self.health.counts

    @property
    def learned(self) -> Mapping[str, StepCost]:
        return NO_COSTS

    def start(self) -> None:
        for server in self._pool.servers:
            self._spawn(self._pool.watch(server))

    def stop(self) -> None:
        for task in (*self._tasks, *self._running.values()):
            task.cancel()
        self._pool.stop()

    def submit(self, job: GenerationJob, emit: Callable[[Event], None]) -> RequestHandle:
        """Implements `Engine.submit`."""
        handle = RequestHandle(job, emit, time.monotonic())
        task = self._running[handle] = asyncio.get_running_loop().create_task(self._run(handle))
        task.add_done_callback(lambda _: self._running.pop(handle, None))
        return handle

    def cancel(self, handle: RequestHandle) -> None:
        """Implements `Engine.cancel`."""
        handle.end()
        if task := self._running.get(handle):
            task.cancel()

    async def _run(self, handle: RequestHandle) -> None:
        job = handle.job
        await self._slots.acquire()
        try:
            started_at = handle.reached[Milestone.ADMITTED] = handle.reached[Milestone.ENCODED] = time.monotonic()
            handle.send(Started())
            deadline, mark = asyncio.timeout(job.remaining_s), self._share.start()
            try:
                async with deadline:
                    if self._config.kind != COMFYUI:
                        _check(job, self._config.names)
                    keys = (*job.inputs.keys, *([job.adapter.key] if job.adapter else ()))
                    files = await asyncio.to_thread(self._fetcher.fetch_all, keys)
                    output = await self._generate(handle, files)
            except TimeoutError as error:
                if deadline.expired():
                    handle.end(DEADLINE_PASSED)
                else:
                    fail(handle, error, self.health)
            except EngineLost as error:
                logger.warning("job %s was lost by its inference server: %s", job.id, error)
                if request := self._running_on.pop(handle, None):
                    request.cancel()
                handle.end(ENGINE_LOST)
            except EngineBusy:
                handle.end(ENGINE_DOWN)
            except EngineRefused as error:
                logger.critical("the inference server refuses the requests of this service: %s", error)
                self.health.broken = True
                handle.end(ENGINE_REFUSED)
            except asyncio.CancelledError:
                handle.end(ENGINE_LOST)  # without effect if the caller has cancelled it
                raise
            except Exception as error:
                fail(handle, error, self.health)
            else:
                self.health.record_success(job)
                is_video, pace = job.request.video is not None, (time.monotonic() - started_at) / _work(job)
                self._pace[is_video] = 0.8 * self._pace.get(is_video, pace) + 0.2 * pace
                handle.device_s = self._share.since(mark)
                handle.end(Done(output))
            finally:
                self._share.stop()
        finally:
            if (request := self._running_on.pop(handle, None)) is None:
                self._slots.release()
            else:
                self._spawn(self._release_after(request))

    async def _release_after(self, request: asyncio.Task[Image.Image]) -> None:
        try:
            with suppress(Exception):
                await asyncio.wait_for(request, _RUNS_ON_S)
        finally:
            self._slots.release()

    async def _generate(self, handle: RequestHandle, files: Files) -> Output:
        """Runs the job on the first server that takes it, and waits while all are busy."""
        job = handle.job
        polls = job.request.video is not None or self._config.kind == COMFYUI
        url, job_id = await self._find_job(job) if polls else (None, None)
        while True:
            async with self._pool.server(url) as server:
                try:
                    if polls:
                        return await self._poll(handle, server.client, files, job_id)
                    assert isinstance(server.client, EngineClient)
                    return await self._image(handle, server.client, files)
                except EngineBusy as busy:
                    pause_s = busy.retry_after_s
                except EngineLost:
                    if job_id is None:
                        raise
                    url, job_id, pause_s = None, None, 0.0  # the server has forgotten the job of an earlier attempt
                except RuntimeError as error:
                    # A server whose worker died answers with an error of its own before it ends or is restarted.
                    if await server.client.is_healthy():
                        raise
                    raise EngineLost(str(error)) from None
            await asyncio.sleep(pause_s * random.uniform(1, 1.5))

    async def _image(self, handle: RequestHandle, client: EngineClient, files: Files) -> Output:
        job = handle.job
        request = asyncio.create_task(client.image(job, files))
        try:
            async with self._progress(handle, is_queued=False):
                image = await asyncio.shield(request)
        except asyncio.CancelledError:
            if client.is_aborted(job):
                request.cancel()
            else:
                self._running_on[handle] = request
            raise
        handle.reached[Milestone.FINISHING] = handle.reached[Milestone.FINISHED] = time.monotonic()
        pixels = fit(np.asarray(image, np.uint8), job.request.width, job.request.height, "smooth")
        return await asyncio.to_thread(self._outputs.store_image, job, pixels)

    async def _poll(self, handle: RequestHandle, client: JobClient, files: Files, job_id: str | None) -> Output:
        """Runs a video or workflow. `job_id`: the server's id of the job that an earlier attempt started."""
        job = handle.job
        try:
            job_id = await client.create(job, files, job_id)
        except (asyncio.CancelledError, EngineLost):
            if self._config.kind == COMFYUI:  # whose id is known, and which may have accepted it
                self._spawn(_forget(client, job.id))
            raise
        # Recorded also for the job of another attempt, as this one has to abort it now.
        record = json.dumps({"url": client.url, "id": job_id, "attempt": job.attempt})
        try:
            try:
                await self._store.put(job.checkpoint, record.encode(), "application/json")
            except UNREACHABLE as error:
                raise Unavailable(str(error)) from None
            async with self._progress(handle, is_queued=True) as progress:
                while (status := await _when_free(lambda: client.status(job_id))).state != "completed":
                    progress.update(status)
                    if status.preview is not None:
                        await self._send_preview(handle, status.preview)
                    await client.changed(job_id, _POLL_S)
            handle.reached[Milestone.FINISHING] = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="results-") as folder:
                results = await _when_free(lambda: client.download(job_id, status, Path(folder)))
                handle.reached[Milestone.FINISHED] = time.monotonic()
                output = await asyncio.to_thread(self._store_results, job, results)
        except asyncio.CancelledError:
            self._spawn(self._abort(job, client, job_id))
            raise
        except (EngineLost, EngineRefused):
            raise
        except Exception:
            await _forget(client, job_id)
            raise
        await _forget(client, job_id)
        return output

    async def _send_preview(self, handle: RequestHandle, preview: PreviewImage) -> None:
        """Stores and sends a preview, at most one every `_PREVIEW_S`."""
        now = time.monotonic()
        if now - self._previewed_at.get(handle, 0.0) < _PREVIEW_S:
            return
        self._previewed_at[handle] = now
        try:
            pixels = np.asarray(open_image(preview.data), np.uint8)
            event = await asyncio.to_thread(
                self._outputs.store_preview, handle.job, pixels, preview.step, preview.steps
            )
        except (JobError, Unavailable) as error:
            logger.warning("a preview of job %s can't be shown: %s", handle.job.id, error)
            return
        handle.send(event)

    def _store_results(self, job: GenerationJob, results: Sequence[Path]) -> Output:
        if self._config.kind != COMFYUI:
            return self._store_video(job, results[0])
        return store_workflow_results(self._outputs, job, results)

    def _store_video(self, job: GenerationJob, file: Path) -> Output:
        """Stores the video. Raises RuntimeError if it is incomplete."""
        assert job.request.video is not None
        try:
            info = reader.probe(file)
            samples = reader.samples(file, info)
            if info.has_audio and not job.request.video.audio:
                file = _without_audio(file)
        except VideoFileError as error:
            raise RuntimeError(f"the engine's video can't be read: {error}") from None
        output = self._outputs.store_video(job, file, None, samples)
        return replace(output, width=info.width, height=info.height)

    async def _find_job(self, job: GenerationJob) -> tuple[str, str] | tuple[None, None]:
        """Returns the address of the server and its id of a job that an earlier attempt started."""
        try:
            record = json.loads(await self._store.get(job.checkpoint))
            url, job_id = record["url"], record["id"]
        except (ValueError, KeyError, TypeError, *UNREACHABLE):
            return None, None
        return (url, job_id) if any(each.client.url == url for each in self._pool.servers) else (None, None)

    async def _abort(self, job: GenerationJob, client: JobClient, job_id: str) -> None:
        """Aborts a job without a caller, unless another attempt takes it over or the task ends, which deletes the
        checkpoint object."""
        give_up_at = time.monotonic() + _ABANDONED_S
        while time.monotonic() < give_up_at:
            try:
                record = json.loads(await self._store.get(job.checkpoint))
                if record["attempt"] != job.attempt:
                    if (record["url"], record["id"]) == (client.url, job_id):
                        return
                    break  # the other attempt runs elsewhere
            except FileNotFoundError:
                break
            except (ValueError, KeyError, *UNREACHABLE):
                pass
            await asyncio.sleep(_POLL_S)
        await _forget(client, job_id)

    @asynccontextmanager
    async def _progress(self, handle: RequestHandle, *, is_queued: bool) -> AsyncIterator[ReportedProgress]:
        """Sends progress while the body runs. `is_queued`: the job may wait at the server first."""
        expected_s = self._pace.get(handle.job.request.video is not None, 0.0) * _work(handle.job)
        progress = ReportedProgress(expected_s, None if is_queued else time.monotonic())

        async def send() -> None:
            while True:
                await asyncio.sleep(_POLL_S)
                now = time.monotonic()
                handle.progress(progress.at(now), now)

        task = asyncio.create_task(send())
        try:
            yield progress
        finally:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _when_free(call: Callable[[], Awaitable[T]]) -> T:
    """Calls a server that has accepted the job, until it is not busy."""
    while True:
        try:
            return await call()
        except EngineBusy as busy:
            await asyncio.sleep(busy.retry_after_s)


async def _forget(client: JobClient, job_id: str) -> None:
    """Deletes or aborts a job, which takes memory of the server."""
    with suppress(EngineLost, EngineBusy, EngineRefused, RuntimeError):
        await client.delete(job_id)


def _check(job: GenerationJob, parameters: Mapping[str, str]) -> None:
    """Raises JobError if the job has fields that the engine does not take."""
    video = job.request.video
    unsupported = {
        "mask": job.inputs.mask is not None and "mask" not in parameters,
        "negative prompt": bool(job.request.negative_prompt) and "negative_prompt" not in parameters,
        "guidance": job.request.guidance is not None and "guidance" not in parameters,
        "strength": job.request.strength is not None and "strength" not in parameters,
        "control image": job.inputs.control is not None,
        "image prompt": job.inputs.image_prompt is not None,
        "layout": bool(job.request.layout),
        "edge thresholds": job.request.canny is not None,
        "tuned model": job.adapter is not None,
        "transparent background": job.request.transparent,
        "start video": bool(job.inputs.start_video or job.inputs.draft or (video is not None and video.draft)),
        "second keyframe": video is not None and len(job.inputs.references) > 1,
    }
    if missing := [name for name, is_missing in unsupported.items() if is_missing]:
        raise JobError(f"this model takes no {' and no '.join(missing)}")


def _work(job: GenerationJob) -> float:
    request = job.request
    return max(1, request.width * request.height) * request.steps * (request.video.frames if request.video else 1)


def _without_audio(file: Path) -> Path:
    silent = file.with_name("silent.mp4")
    subprocess.run(command("-i", str(file), "-an", "-c:v", "copy", str(silent)), check=True, capture_output=True)
    return silent
