from __future__ import annotations

import asyncio
import base64
import io
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image
from starlette.responses import JSONResponse, Response
from support import inference_server
from support.images import image_file
from support.inference_server import InferenceServer, serving, video_file
from support.jobs import change_job, make_job
from support.virtual_backend import VirtualClock

from deployments.contract.events import Done, Event, Failed, Interrupted, Progress, Started
from deployments.contract.job import GenerationJob
from deployments.contract.model import EngineConfig
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.remote_engine import engine as remote_engine
from deployments.remote_engine import servers
from deployments.remote_engine.engine import DeviceShare, RemoteEngine
from deployments.video import reader

encode_video_once = cache(video_file)


class Runner:
    """A remote engine with its object store."""

    def __init__(self, engine: RemoteEngine, store: ObjectStore) -> None:
        self.engine, self.store = engine, store

    async def run(self, job: GenerationJob) -> list[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self.engine.submit(job, queue.put_nowait)
        events: list[Event] = []
        while not events or not isinstance(events[-1], Done | Failed | Interrupted):
            events.append(await asyncio.wait_for(queue.get(), 60))
        return events

    async def last(self, job: GenerationJob) -> Event:
        return (await self.run(job))[-1]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def build(stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(servers, "_HEALTH_EVERY_S", 0.05)
    monkeypatch.setattr(remote_engine, "_POLL_S", 0.05)
    monkeypatch.setattr(inference_server, "video_file", encode_video_once)

    async def build(
        *inference_servers: InferenceServer, store: ObjectStore | None = None, max_running: int = 4, **options: Any
    ) -> Runner:
        for server in inference_servers:
            if not server.url:
                await stack.enter_async_context(serving(server))
        urls = tuple(server.url for server in inference_servers)
        config = EngineConfig(kind=inference_servers[0].kind, url=urls, health_timeout_s=0.4, **options)  # type: ignore[arg-type]
        store = store or ObjectStore("memory:///")
        engine = await asyncio.to_thread(RemoteEngine, config, store, max_running=max_running)
        engine.start()
        stack.push_async_callback(close, engine)
        return Runner(engine, store)

    return build


def job(**changes: Any) -> GenerationJob:
    return change_job(make_job("job"), width=64, height=48, steps=7, seed=5, **changes)


def video(**changes: Any) -> VideoParams:
    return VideoParams(frames=8, fps=8, **changes)


async def test_image_request_has_the_engines_fields(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni")
    runner = await build(server, model="Qwen/Qwen-Image", kwargs={"true_cfg_scale": 4})
    started, *_, done = await runner.run(job(guidance=3.5, negative_prompt="text", output_format="png"))
    assert isinstance(started, Started)
    assert isinstance(done, Done)
    ((path, fields),) = server.requests
    assert path == "/v1/images/generations"
    assert fields == {
        "prompt": job().request.prompt,
        "model": "Qwen/Qwen-Image",
        "seed": 5,
        "num_inference_steps": 7,
        "guidance_scale": 3.5,
        "negative_prompt": "text",
        "true_cfg_scale": 4,
        "n": 1,
        "size": "64x48",
        "response_format": "b64_json",
        "output_format": "png",
    }
    data = await runner.store.get(done.output.key)
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.size) == ("PNG", (64, 48))


@pytest.mark.parametrize(("kind", "mask"), [("vllm-omni", {"mask_image": list}), ("gen-serve", {"mask": list})])
async def test_references_and_masks_are_uploaded(kind: str, mask: dict[str, type], build: Callable[..., Any]) -> None:
    server = InferenceServer(kind)
    runner = await build(server)
    for key, data in {"a": image_file(64, 48), "b": image_file(32, 32), "mask": image_file(64, 48)}.items():
        await runner.store.put(key, data, "image/png")
    assert isinstance(await runner.last(job(references=("a", "b"), mask="mask")), Done)
    ((path, fields),) = server.requests
    assert path == "/v1/images/edits"
    assert [size for _, size in fields["image"]] == [len(image_file(64, 48)), len(image_file(32, 32))]
    assert {name: type(fields[name]) for name in mask} == mask


@pytest.mark.parametrize(
    ("kind", "has_image"), [("vllm-omni", False), ("sglang", False), ("sglang", True), ("gen-serve", True)]
)
async def test_video_is_polled_stored_and_deleted_at_the_engine(
    kind: str, has_image: bool, build: Callable[..., Any], tmp_path: Path
) -> None:
    server = InferenceServer(kind, seconds=0.3)
    runner = await build(server)
    await runner.store.put("first", image_file(64, 48), "image/png")
    references = ("first",) if has_image else ()
    events = await runner.run(job(video=video(audio=False), output_format="mp4", references=references))
    assert isinstance(events[-1], Done), events
    (tmp_path / "video.mp4").write_bytes(await runner.store.get(events[-1].output.key))
    info = reader.probe(tmp_path / "video.mp4")
    assert (info.width, info.height, info.has_audio) == (64, 36, False)
    assert (events[-1].output.width, events[-1].output.height) == (64, 36)
    assert server.videos == {}
    assert server.aborted == []
    if kind == "gen-serve":
        assert any(isinstance(event, Progress) and 0 < event.fraction < 1 for event in events)


UNPROCESSABLE = Interrupted("the model could not process this request", blame=True)


async def test_unreported_progress_is_estimated_from_earlier_jobs(build: Callable[..., Any]) -> None:
    server = InferenceServer("sglang", seconds=0.6)
    runner = await build(server)
    first = await runner.run(job())
    second = await runner.run(job())
    assert not any(isinstance(event, Progress) for event in first)
    assert any(isinstance(event, Progress) and 0 < event.fraction < 1 for event in second)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (JSONResponse({"detail": "Invalid size"}, 400), Failed("the model refuses this request: Invalid size")),
        (
            JSONResponse({"error": {"message": "no file /srv/models/lora.safetensors\nTraceback"}}, 422),
            Failed("the model refuses this request: no file …"),
        ),
        (
            JSONResponse({"error": {"message": "CUDA out of memory. Tried to allocate 2 GiB"}}, 500),
            Failed("not enough memory for this image: ask for a smaller size or fewer references"),
        ),
        (
            JSONResponse({"detail": "worker died"}, 500),
            UNPROCESSABLE,
        ),
        (JSONResponse({"data": [{"b64_json": base64.b64encode(b"half").decode()}]}), UNPROCESSABLE),
        (Response('{"data": [{"b64', media_type="application/json"), UNPROCESSABLE),
        (
            JSONResponse(
                {
                    "error": {
                        "message": "1 validation error:\n  {'type': 'x', 'msg': 'Input should be less than "
                        "or equal to 200', 'input': 201}",
                        "param": "body.num_inference_steps",
                    }
                },
                400,
            ),
            Failed("the model refuses this request: num_inference_steps: Input should be less than or equal to 200"),
        ),
        (
            JSONResponse(
                {"detail": "1 validation error for VideoGenerationRequest\nfps\n  Input should be > 0 [type=x]"},
                422,
            ),
            Failed("the model refuses this request: fps: Input should be > 0"),
        ),
        (Response("Internal Server Error", 500), UNPROCESSABLE),
        (JSONResponse({"detail": "no such model"}, 404), remote_engine.ENGINE_REFUSED),
        (JSONResponse({"detail": "wrong key"}, 401), remote_engine.ENGINE_REFUSED),
        (JSONResponse({"error": {"code": "insufficient_quota"}}, 429), remote_engine.ENGINE_REFUSED),
        (Response(status_code=503, headers={"x-should-retry": "false"}), remote_engine.ENGINE_REFUSED),
    ],
)
async def test_response_decides_how_the_attempt_ends(
    answer: Response, expected: Event, build: Callable[..., Any]
) -> None:
    server = InferenceServer("vllm-omni")
    runner = await build(server)
    server.faults.append(answer)
    assert await runner.last(job()) == expected


async def test_busy_engine_is_retried(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni")
    runner = await build(server)
    server.faults += [Response(status_code=429, headers={"Retry-After": "0"}), Response(status_code=503)]
    assert isinstance(await runner.last(job()), Done)
    assert len(server.requests) == 3


async def test_refusing_engine_marks_the_replica_broken(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni")
    runner = await build(server)
    server.faults.append(JSONResponse({"detail": "wrong key"}, 401))
    await runner.last(job())
    assert runner.engine.health.broken


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("vllm-omni", JSONResponse({"detail": "wrong key"}, 401)), ("gen-serve", JSONResponse({"credits": 0}))],
)
async def test_refusing_engine_fails_the_load(kind: str, answer: Response, build: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError, match="refuses the requests of this service"):
        await build(InferenceServer(kind, access=answer))


async def test_worker_that_died_costs_no_blame(build: Callable[..., Any]) -> None:
    server = InferenceServer("sglang")
    runner = await build(server)
    server.faults.append(Response("Internal Server Error", 500))
    server.healthy = False
    assert await runner.last(job()) == remote_engine.ENGINE_LOST


async def test_image_is_asked_for_without_loss(build: Callable[..., Any]) -> None:
    runner = await build(InferenceServer("sglang"))
    done = await runner.last(job(output_format="png"))
    assert isinstance(done, Done)
    with Image.open(io.BytesIO(await runner.store.get(done.output.key))) as image:
        shade = np.random.default_rng(5).integers(0, 256, 3, dtype=np.uint8)
        assert np.array_equal(np.asarray(image), np.tile(shade, (48, 64, 1)))


async def test_large_mask_is_sent_as_a_file(build: Callable[..., Any]) -> None:
    runner = await build(InferenceServer("vllm-omni"))
    noise = np.random.default_rng(0).integers(0, 256, (1100, 1100), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    await runner.store.put("mask", file.getvalue(), "image/png")
    await runner.store.put("a", image_file(64, 48), "image/png")
    assert isinstance(await runner.last(job(references=("a",), mask="mask")), Done)


@pytest.mark.parametrize("status", [503, 429, 500])
async def test_failed_video_is_not_made_again(status: int, build: Callable[..., Any]) -> None:
    failed = {"id": "video-0", "status": "failed", "error": {"message": "no video stage"}}
    server = InferenceServer("vllm-omni", failure=JSONResponse(failed, status))
    runner = await build(server)
    assert await runner.last(job(video=video(), output_format="mp4")) == UNPROCESSABLE
    assert len(server.requests) == 1
    assert server.videos == {}


async def test_busy_server_keeps_its_video(build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    server = InferenceServer("vllm-omni", seconds=0.5, failure=Response(status_code=503, headers={"Retry-After": "0"}))
    runner = await build(server)
    work = asyncio.create_task(runner.last(job(video=video(), output_format="mp4")))
    await until(lambda: bool(server.videos))
    await asyncio.sleep(0.2)
    server.failure = None
    assert isinstance(await work, Done)
    assert len(server.requests) == 1


async def test_moved_video_is_fetched_from_its_storage(build: Callable[..., Any]) -> None:
    runner = await build(InferenceServer("sglang", moves_videos=True))
    assert isinstance(await runner.last(job(video=video(), output_format="mp4")), Done)


async def test_reported_progress_replaces_the_estimate(build: Callable[..., Any]) -> None:
    server = InferenceServer("sglang", seconds=0.2)
    runner = await build(server)
    assert isinstance(await runner.last(job(video=video(), output_format="mp4")), Done)
    server.seconds, server.progress_steps = 2.0, True
    events = await runner.run(job(video=video(), output_format="mp4"))
    shares = [event.fraction for event in events if isinstance(event, Progress)]
    assert len(shares) >= 4, "an estimate of a short job would have reached its limit at once"


async def test_image_that_runs_on_keeps_its_slot(build: Callable[..., Any]) -> None:
    server = InferenceServer("sglang", seconds=0.5)
    runner = await build(server, max_running=1)
    events: list[Event] = []
    cancelled = runner.engine.submit(job(), events.append)
    await until(lambda: bool(server.requests))
    runner.engine.cancel(cancelled)
    following = asyncio.create_task(runner.last(change_job(job(), id="next")))
    await asyncio.sleep(0.2)
    assert len(server.requests) == 1
    assert isinstance(await following, Done)


async def test_truncated_video_fails_the_attempt(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni", seconds=0.5)
    runner = await build(server)
    work = asyncio.create_task(runner.last(job(video=video(), output_format="mp4")))
    await until(lambda: bool(server.videos))
    server.faults.append(Response(video_file(8, audio=True)[:900], media_type="video/mp4"))
    assert await work == UNPROCESSABLE
    assert server.videos == {}


async def test_job_goes_to_the_least_loaded_server(build: Callable[..., Any]) -> None:
    pair = [InferenceServer("sglang", seconds=0.2), InferenceServer("sglang", seconds=0.2)]
    runner = await build(*pair)
    assert all(isinstance(last, Done) for last in await asyncio.gather(*(runner.last(job()) for _ in range(4))))
    assert [len(server.requests) for server in pair] == [2, 2]


async def test_jobs_of_a_hung_engine_are_interrupted_without_blame(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni", seconds=30)
    runner = await build(server)
    work = asyncio.create_task(runner.last(job()))
    await until(lambda: bool(server.requests))
    server.healthy = False
    assert await work == remote_engine.ENGINE_LOST
    assert await runner.last(job()) == remote_engine.ENGINE_DOWN
    server.healthy, server.seconds = True, 0
    assert isinstance(await runner.last(job()), Done)


async def test_cancelled_job_is_aborted_at_the_engine(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni", seconds=30)
    runner = await build(server)
    events: list[Event] = []
    image = runner.engine.submit(job(), events.append)
    clip = runner.engine.submit(job(video=video(), output_format="mp4"), events.append)
    await until(lambda: len(server.requests) == 2 and bool(server.videos))
    await until_recorded(runner.store)
    runner.engine.cancel(image)
    runner.engine.cancel(clip)
    await runner.store.delete(["checkpoints/job.safetensors"])  # as the dispatcher does when a task ends
    await until(lambda: server.videos == {})
    assert [type(event) for event in events] == [Started, Started]


async def test_next_attempt_resumes_the_engines_video(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni", seconds=1.5)
    first = await build(server)
    second = await build(server, store=first.store)
    events: list[Event] = []
    handle = first.engine.submit(job(video=video(), output_format="mp4"), events.append)
    await until(lambda: bool(server.videos))
    await until_recorded(first.store)
    first.engine.cancel(handle)
    attempt = change_job(job(video=video(), output_format="mp4"), attempt=2, output_prefix="results/job/2")
    assert isinstance(await second.last(attempt), Done)
    assert len(server.requests) == 1
    assert server.aborted == []


async def test_forgotten_video_is_made_again(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni", seconds=0.2)
    runner = await build(server)
    record = f'{{"url": "{server.url}", "id": "video-of-before", "attempt": 1}}'
    await runner.store.put("checkpoints/job.safetensors", record.encode(), "application/json")
    assert isinstance(await runner.last(job(video=video(), output_format="mp4")), Done)


async def test_field_unknown_to_the_engine_is_rejected(build: Callable[..., Any]) -> None:
    runner = await build(InferenceServer("gen-serve"))
    last = await runner.last(job(negative_prompt="text", strength=0.5))
    assert last == Failed("this model takes no negative prompt and no strength")


async def test_deadline_ends_the_job(build: Callable[..., Any]) -> None:
    runner = await build(InferenceServer("vllm-omni", seconds=30))
    assert isinstance(await runner.last(job(remaining_s=0.3)), Failed)


async def test_cancellation_wins_over_a_lost_server(build: Callable[..., Any]) -> None:
    server = InferenceServer("vllm-omni", seconds=30)
    runner = await build(server)
    events: list[Event] = []
    handle = runner.engine.submit(job(), events.append)
    await until(lambda: bool(server.requests))
    running = runner.engine._running[handle]
    runner.engine._pool.servers[0].lost.set()
    await asyncio.sleep(0)
    running.cancel()  # in the same pass in which the job is interrupted
    await asyncio.wait([running])
    assert running.cancelled()


def test_concurrent_jobs_share_device_time() -> None:
    clock = VirtualClock()
    share = DeviceShare(clock)
    first = share.start()
    clock.now += 60
    others = [share.start() for _ in range(7)]
    clock.now += 8
    assert share.since(first) == 61
    share.stop()
    clock.now += 7
    assert [share.since(mark) for mark in others] == [2] * 7
    for _ in others:
        share.stop()
    clock.now += 100
    assert share.since(share.start()) == 0


async def test_dead_command_is_restarted_and_ends_with_its_engine(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_HEALTH_EVERY_S", 0.05)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    command = f"{sys.executable} -m support.inference_server {{port}} vllm-omni 0.5"
    config = EngineConfig(kind="vllm-omni", command=command)
    engine = await asyncio.to_thread(RemoteEngine, config, ObjectStore("memory:///"), max_running=4)
    stack.push_async_callback(close, engine)
    engine.start()
    runner = Runner(engine, ObjectStore("memory:///"))
    assert isinstance(await runner.last(job()), Done)
    work = asyncio.create_task(runner.last(job()))
    await asyncio.sleep(0.2)
    (server,) = children("support.inference_server")
    lost = engine._pool.servers[0].lost
    server.kill()
    assert await work == remote_engine.ENGINE_LOST
    # A job that comes before the engine notices the end is lost as well, and queued again.
    await until(lost.is_set)
    assert isinstance(await runner.last(job()), Done)
    await asyncio.to_thread(engine.stop)
    assert children("support.inference_server") == []


async def close(engine: RemoteEngine) -> None:
    engine.stop()
    await asyncio.gather(*engine._tasks, *engine._running.values(), return_exceptions=True)
    for server in engine._pool.servers:
        await server.client.close()


def children(name: str) -> list[psutil.Process]:
    """Returns the engine's processes, without the supervisor, which has the same words in its command."""
    return [
        each
        for each in psutil.Process().children(recursive=True)
        if name in " ".join(each.cmdline()) and "-c" not in each.cmdline() and each.status() != psutil.STATUS_ZOMBIE
    ]


async def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.02)


async def until_recorded(store: ObjectStore) -> None:
    """Returns once an attempt has noted the id of its video."""
    async with asyncio.timeout(20):
        while not await store.keys("checkpoints"):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "either url or command"),
        ({"url": "http://a", "command": "serve {port}"}, "either url or command"),
        ({"command": "serve"}, "must say {port}"),
        ({"url": "gpu-1:30000"}, "must begin with http"),
        ({"url": "http://a", "fields": {"sead": "seed"}}, "fields: sead must be of"),
    ],
)
def test_contradictory_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(kind="vllm-omni", **settings)
