"""ComfyUI workflows, run by a replica's engine on a server that behaves as ComfyUI does."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.comfy_server import ComfyServer, serving_comfy

from deployments.contract.events import Done, Event, Failed, Interrupted, Preview, Progress
from deployments.contract.job import GenerationJob, InputKeys, Output
from deployments.contract.model import EngineConfig
from deployments.contract.objects import ObjectStore
from deployments.contract.request import OutputFormat, Placement, ResolvedRequest
from deployments.contract.workflow import Workflow
from deployments.engine.requests import RequestHandle
from deployments.remote_engine import comfyui
from deployments.remote_engine.engine import RemoteEngine

GRAPH: dict[str, Any] = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "tiny.safetensors"}},
    "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a", "clip": ["1", 1]}, "_meta": {"title": "Positive"}},
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "seed": 1,
            "steps": 4,
            "cfg": 7.0,
            "sampler_name": "euler",
            "model": ["1", 0],
            "positive": ["2", 0],
            "negative": ["2", 0],
            "latent_image": ["5", 0],
        },
    },
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 48, "batch_size": 1}},
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["1", 2]}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "mine"}},
}


@dataclass
class Replica:
    engine: RemoteEngine
    store: ObjectStore

    def submit(self, job: GenerationJob) -> SubmittedJob:
        attempt = SubmittedJob()
        attempt.handle = self.engine.submit(job, attempt.add)
        return attempt

    async def run(self, job: GenerationJob) -> Event:
        attempt = self.submit(job)
        return await attempt.end()

    def image(self, output: Output) -> Image.Image:
        return Image.open(io.BytesIO(self.store.get_blocking(output.key)))


@dataclass
class SubmittedJob:
    events: list[Event] = field(default_factory=list)
    handle: RequestHandle | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, reason: Callable[[Event], bool]) -> Event:
        async with asyncio.timeout(60):
            while True:
                for event in self.events:
                    if reason(event):
                        return event
                self.changed.clear()
                await self.changed.wait()

    async def end(self) -> Event:
        return await self.until(lambda event: isinstance(event, (Done, Failed, Interrupted)))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ComfyServer]:
    async with serving_comfy(ComfyServer(tmp_path / "comfy")) as server:
        yield server


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Replica]]]:
    store = ObjectStore(f"file://{tmp_path}/objects")
    async with AsyncExitStack() as stack:

        async def make(*servers: ComfyServer, graph: dict[str, Any] | None = None, **settings: Any) -> Replica:
            urls = tuple(each.url for each in servers)
            config = EngineConfig(kind="comfyui", workflow=Path("portrait.json"), url=urls, **settings)
            workflow = Workflow(graph or GRAPH)
            engine = await asyncio.to_thread(RemoteEngine, config, store, max_running=8, workflow=workflow)
            engine.start()
            stack.push_async_callback(_stop, engine)
            return Replica(engine, store)

        yield make


async def _stop(engine: RemoteEngine) -> None:
    engine.stop()
    await asyncio.wait(engine._tasks)


def job(number: int = 1, attempt: int = 1, output_format: OutputFormat = "original", **values: Any) -> GenerationJob:
    """Returns a job of a workflow; `values` are inputs at places of the sampler."""
    placements = [Placement(name, (f"3.{name}",), value) for name, value in values.items()]
    fields = {"prompt": "Positive.text", "seed": "3.seed", "width": "5.width", "height": "5.height"}
    placements += [Placement(name, (place,), field=name) for name, place in fields.items()]
    request = ResolvedRequest(
        prompt="a star",
        width=64,
        height=48,
        steps=4,
        seed=number,
        output_format=output_format,
        placements=tuple(placements),
    )
    return GenerationJob(f"task-{number}", attempt, request, f"results/task-{number}/{attempt}")


async def test_values_of_a_job_reach_their_places(server: ComfyServer, replicas: Any) -> None:
    replica = await replicas(server)
    end = await replica.run(job(cfg=3.5))
    assert isinstance(end, Done)
    (prompt,) = server.submitted
    inputs = {node: each["inputs"] for node, each in prompt.graph.items()}
    assert (inputs["2"]["text"], inputs["3"]["seed"], inputs["3"]["cfg"]) == ("a star", 1, 3.5)
    assert (inputs["5"]["width"], inputs["5"]["height"]) == (64, 48)
    assert (end.output.width, end.output.height, end.output.content_type) == (64, 48, "image/png")
    assert server.history == {}


async def test_metadata_of_a_result_does_not_leave(server: ComfyServer, replicas: Any) -> None:
    replica = await replicas(server)
    end = await replica.run(job())
    assert isinstance(end, Done)
    stored = next(server.folder.rglob("*.png"))
    with Image.open(stored) as original, replica.image(end.output) as image:
        assert original.text  # type: ignore[attr-defined]
        assert not image.text  # type: ignore[attr-defined]
        assert image.tobytes() == original.tobytes()


async def test_other_format_is_encoded_anew(server: ComfyServer, replicas: Any) -> None:
    replica = await replicas(server)
    end = await replica.run(job(output_format="webp"))
    assert isinstance(end, Done)
    assert (end.output.content_type, replica.image(end.output).format) == ("image/webp", "WEBP")


async def test_sampler_reports_progress_and_previews(server: ComfyServer, replicas: Any) -> None:
    server.step_s = 0.3
    attempt = (await replicas(server)).submit(job())
    await attempt.end()
    shares = [event.fraction for event in attempt.events if isinstance(event, Progress)]
    assert len(shares) >= 2
    assert shares == sorted(shares)
    assert any(isinstance(event, Preview) for event in attempt.events)


async def test_silent_socket_delays_but_loses_nothing(server: ComfyServer, replicas: Any) -> None:
    server.silent = True
    assert isinstance(await (await replicas(server)).run(job()), Done)


async def test_every_output_is_a_result(server: ComfyServer, replicas: Any) -> None:
    graph = GRAPH | {"5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 48, "batch_size": 3}}}
    replica = await replicas(server, graph=graph, output="9")
    end = await replica.run(job())
    assert isinstance(end, Done)
    outputs = [end.output, *end.output.more]
    assert len({replica.image(each).tobytes() for each in outputs}) == 3
    assert len(set(end.output.files)) == 6, "an image and its thumbnail each"


async def test_equal_jobs_have_files_of_their_own(server: ComfyServer, replicas: Any) -> None:
    replica = await replicas(server)
    first = await replica.run(job())
    for file in server.folder.rglob("*.png"):
        file.unlink()
    second = await replica.run(replace(job(), id="task-2", output_prefix="results/task-2/1"))
    assert isinstance(first, Done)
    assert isinstance(second, Done)


async def test_refused_value_names_its_input(server: ComfyServer, replicas: Any) -> None:
    end = await (await replicas(server)).run(job(cfg=101.0))
    assert isinstance(end, Failed)
    assert end.reason == "cfg: Value 101.0 bigger than max of 100.0"


async def test_partly_refused_workflow_does_not_run(server: ComfyServer, replicas: Any) -> None:
    whole = {"21": {"class_type": "LoadImage", "inputs": {"image": "example.png"}}}
    whole["22"] = {"class_type": "SaveImage", "inputs": {"images": ["21", 0], "filename_prefix": "x"}}  # type: ignore[dict-item]
    end = await (await replicas(server, graph=GRAPH | whole)).run(job(cfg=101.0))
    assert isinstance(end, Failed)
    assert not server.waiting
    assert server.history == {}


async def test_replica_tells_what_its_server_lacks(server: ComfyServer, replicas: Any) -> None:
    loader = {"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "gone.safetensors"}}}
    with pytest.raises(RuntimeError, match="node 1: the server has no ckpt_name"):
        await replicas(server, graph=GRAPH | loader)
    with pytest.raises(RuntimeError, match="no node class FancyNode"):
        await replicas(server, graph=GRAPH | {"4": {"class_type": "FancyNode", "inputs": {}}})


async def test_refused_workflow_is_not_the_jobs_fault(server: ComfyServer, replicas: Any) -> None:
    sampler = {"3": {**GRAPH["3"], "inputs": GRAPH["3"]["inputs"] | {"cfg": 101.0}}}
    replica = await replicas(server, graph=GRAPH | sampler)
    end = await replica.run(job())
    assert isinstance(end, Interrupted)
    assert not end.blame
    assert replica.engine.health.broken


@pytest.mark.parametrize(
    ("error", "blame"),
    [(("RuntimeError", "bad latent"), True), (("torch.OutOfMemoryError", "Allocation on device"), None)],
    ids=["error", "out of memory"],
)
async def test_failed_node_ends_the_attempt(
    server: ComfyServer, replicas: Any, error: tuple[str, str], blame: bool | None
) -> None:
    server.error = error
    end = await (await replicas(server)).run(job())
    assert isinstance(end, Failed if blame is None else Interrupted)
    assert "/secret" not in end.reason
    if isinstance(end, Interrupted):
        assert end.blame is blame


@pytest.mark.parametrize("targeted", [True, False], ids=["targeted interrupt", "old server"])
async def test_cancel_stops_only_its_own_job(
    server: ComfyServer, replicas: Any, tmp_path: Path, targeted: bool
) -> None:
    server.step_s, server.targeted_interrupt = 0.05, targeted
    replica = await replicas(server)
    attempts = list[SubmittedJob]()
    async with asyncio.timeout(60):
        for number in range(4):
            # The cancelled ones would not end by themselves.
            attempts.append(replica.submit(job(number, steps=1 if number % 2 else 10_000)))
            while len(list((tmp_path / "objects").rglob("*.safetensors"))) <= number:
                await asyncio.sleep(0.02)
    for number in (0, 2):
        await replica.store.delete([job(number).checkpoint])
        replica.engine.cancel(attempts[number].handle)
    for number in (1, 3):
        assert isinstance(await attempts[number].end(), Done)
    finished = {name.split("/")[-1].split("-1_")[0] for name in map(str, server.folder.rglob("*.png"))}
    assert finished == {"task-1", "task-3"}


async def test_next_attempt_joins_the_running_prompt(server: ComfyServer, replicas: Any) -> None:
    server.step_s = 0.2
    replica = await replicas(server)
    first = replica.submit(job())
    await first.until(lambda event: isinstance(event, Progress))
    replica.engine.cancel(first.handle)
    end = await (await replicas(server)).run(replace(job(), attempt=2, output_prefix="results/task-1/2"))
    assert isinstance(end, Done)
    assert len(server.submitted) == 1


async def test_failure_of_an_earlier_attempt_does_not_count(server: ComfyServer, replicas: Any) -> None:
    failed = ["execution_error", {"exception_type": "RuntimeError", "exception_message": "x"}]
    status = {"status_str": "error", "completed": False, "messages": [failed]}
    server.history["task-1"] = {"outputs": {}, "status": status}
    assert isinstance(await (await replicas(server)).run(replace(job(), attempt=2)), Done)


async def test_foreign_message_leaves_the_socket_open(server: ComfyServer, replicas: Any) -> None:
    server.step_s = 0.2
    attempt = (await replicas(server)).submit(job(steps=20))
    await attempt.until(lambda event: isinstance(event, Progress))
    for message in ('["a"]', '{"type": "x", "data": "text"}'):
        await server._send_raw(server.submitted[0], message)
    seen = len([event for event in attempt.events if isinstance(event, Preview)])
    assert isinstance(await attempt.end(), Done)
    assert len([event for event in attempt.events if isinstance(event, Preview)]) > seen


async def test_joined_prompt_may_be_silent(server: ComfyServer, replicas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comfyui, "_LOOK_S", 0.1)
    server.step_s = 0.5
    replica = await replicas(server)
    first = replica.submit(job(steps=6))
    await first.until(lambda event: isinstance(event, Progress))
    replica.engine.cancel(first.handle)
    end = await (await replicas(server, stall_s=0.3)).run(replace(job(steps=6), attempt=2))
    assert isinstance(end, Done)
    assert len(server.submitted) == 1


async def test_server_that_names_prompts_itself_is_refused(server: ComfyServer, replicas: Any) -> None:
    server.takes_ids = False
    replica = await replicas(server)
    end = await replica.run(job())
    assert isinstance(end, Interrupted)
    assert replica.engine.health.broken


async def test_dead_worker_thread_is_noticed(
    server: ComfyServer, replicas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comfyui, "_INTERRUPT_S", 0.2)
    monkeypatch.setattr(comfyui, "_LOOK_S", 0.2)
    server.dies_at = "8"
    replica = await replicas(server, stall_s=0.5)
    end = await replica.run(job())
    assert isinstance(end, Interrupted)
    assert not end.blame
    (only,) = replica.engine._pool.servers
    assert not await only.client.is_healthy()


async def test_interrupt_by_another_client_costs_no_blame(server: ComfyServer, replicas: Any) -> None:
    server.step_s = 0.2
    attempt = (await replicas(server)).submit(job())
    await attempt.until(lambda event: isinstance(event, Progress))
    server._interrupt = True
    end = await attempt.end()
    assert isinstance(end, Interrupted)
    assert not end.blame


async def test_file_of_a_request_is_uploaded(server: ComfyServer, replicas: Any) -> None:
    graph: dict[str, Any] = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "mine"}},
    }
    replica = await replicas(server, graph=graph)
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    replica.store.put_blocking("inputs/task-1/0.png", file.getvalue(), "image/png")
    request = replace(job().request, placements=(Placement("face", ("1.image",)),))
    inputs = InputKeys(files=(("face", "inputs/task-1/0.png"),))
    assert isinstance(await replica.run(replace(job(), request=request, inputs=inputs)), Done)
    assert server.submitted[0].graph["1"]["inputs"]["image"] == "task-1-face.png [temp]"
    assert (server.folder / "temp" / "task-1-face.png").read_bytes() == file.getvalue()
