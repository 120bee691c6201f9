"""The diffusers backend: any diffusers pipeline, one call per batch that the engine drives step by step.

Jobs that are encoded together and agree in size and settings go in one call (static batching). Calls interleave between
steps. A call that fails is replaced by calls for each of its jobs alone, which catch up: seeds make them repeatable.
"""

from __future__ import annotations

import inspect
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from deployments.backend import JobError, NotFinite, OutOfMemory
from deployments.backends.inputs import InputFetcher
from deployments.backends.pipeline_run import PipelineRun, stop_before_steps
from deployments.contract import counts
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.engine.scheduler import MemoryLimit
from deployments.families.device_errors import translate_device_errors
from deployments.images import Pixels, fit, open_image
from deployments.lora.segments import AdaptedLayers, AppliedAdapter
from deployments.lora.weights import AdapterCache
from deployments.lru_cache import MB
from deployments.outputs import Outputs
from deployments.video.writer import Audio, VideoWriter

_PIXELS_PER_TOKEN: Final = 256


@dataclass(frozen=True, slots=True)
class PipelineSignature:
    """The parameters of a pipeline's `__call__`, by what they mean here. None: the pipeline has no such parameter."""

    parameters: frozenset[str]
    guidance: str | None
    image: str | None
    fps: str | None
    frame_group: int = 1

    @classmethod
    def from_pipeline(cls, pipeline: Any) -> PipelineSignature:
        """`pipeline` may be the class."""
        parameters = inspect.signature(pipeline.__call__).parameters
        names = frozenset(parameters)
        group = int(
            getattr(pipeline, "vae_scale_factor_temporal", getattr(pipeline, "vae_temporal_compression_ratio", 1))
        )
        # Pipelines with both are distilled (guidance_scale feeds the network), unless CFG is on by default.
        cfg = parameters.get("true_cfg_scale")
        if cfg is not None and isinstance(cfg.default, (int, float)) and cfg.default > 1:
            guidance: str | None = "true_cfg_scale"
        else:
            guidance = _first(names, "guidance_scale")
        return cls(names, guidance, _first(names, "image", "images"), _first(names, "frame_rate", "fps"), group)

    def check(self, job: GenerationJob) -> None:
        """Raises JobError naming what the pipeline can't take."""
        needed = {
            "images": bool(job.references) and self.image is None,
            "mask": job.mask is not None and "mask_image" not in self.parameters,
            "control image": job.control is not None and "control_image" not in self.parameters,
            "image prompt": job.image_prompt is not None,
            "layout": bool(job.layout),
            "edge thresholds": job.canny is not None,
            "transparent background": job.transparent,
            "negative prompt": bool(job.negative_prompt) and "negative_prompt" not in self.parameters,
            "guidance": job.guidance is not None and self.guidance is None,
            "strength": job.strength is not None and "strength" not in self.parameters,
            "frames": job.video is not None and "num_frames" not in self.parameters,
        }
        missing = [name for name, lacks in needed.items() if lacks]
        if missing:
            raise JobError(f"this model takes no {' and no '.join(missing)}")

    def arguments(self, jobs: Sequence[GenerationJob], images: Mapping[str, bytes]) -> dict[str, Any]:
        """Of one call for `jobs`, which agree in all but prompts and seeds; only a single job may have images."""
        job = jobs[0]
        generators = [torch.Generator("cpu").manual_seed(each.seed) for each in jobs]
        arguments: dict[str, Any] = {
            "prompt": _one_or_list([each.prompt for each in jobs]),
            "generator": _one_or_list(generators),
            "width": job.width,
            "height": job.height,
            "num_inference_steps": job.steps,
            "output_type": "np",
        }
        if "negative_prompt" in self.parameters and (job.negative_prompt or self.guidance == "true_cfg_scale"):
            # True CFG is off without one; an empty prompt has no tokens for some encoders.
            arguments["negative_prompt"] = _one_or_list([each.negative_prompt or " " for each in jobs])
        if self.guidance is not None and job.guidance is not None:
            arguments[self.guidance] = job.guidance
        if job.strength is not None:
            arguments["strength"] = job.strength
        if job.references and self.image is not None:
            arguments[self.image] = _one_or_list([_rgb(images[key]) for key in job.references])
        if job.mask is not None:
            arguments["mask_image"] = open_image(images[job.mask]).convert("L")
        if job.control is not None:
            arguments["control_image"] = _rgb(images[job.control])
        if job.video is not None:
            # Encoders of videos take one frame and whole groups of frames; what is too much is cut off.
            arguments["num_frames"] = 1 + -(-(job.video.frames - 1) // self.frame_group) * self.frame_group
            if self.fps is not None:
                arguments[self.fps] = float(job.video.fps)
        return {name: value for name, value in arguments.items() if name in self.parameters}


@dataclass(frozen=True, slots=True)
class FetchedJob:
    job: GenerationJob
    images: Mapping[str, bytes]
    adapter: AppliedAdapter | None


@dataclass(eq=False)
class _Call:
    """A run and the adapter it has; the run ends with the last state that refers to this."""

    run: PipelineRun
    adapter: AppliedAdapter | None
    size: int
    """How many jobs it is for."""
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        weakref.finalize(self, self.run.abort)


@dataclass(slots=True, eq=False)
class PipelineState:
    """One job of a call: its `index`-th."""

    fetched: FetchedJob
    call: _Call
    index: int
    done_steps: int = 0

    @property
    def job(self) -> GenerationJob:
        return self.fetched.job

    @property
    def key(self) -> Hashable:
        return self.job.guidance is not None, self.call.adapter is not None

    @property
    def tokens(self) -> int:
        frames = self.job.video.frames if self.job.video else 1
        return max(1, self.job.width * self.job.height * frames // _PIXELS_PER_TOKEN)

    @property
    def total_steps(self) -> int:
        return max(self.call.run.total_steps, 1)

    @property
    def steps_alike(self) -> int:
        return self.total_steps - self.done_steps


class DiffusersBackend:
    """Implements Backend[FetchedJob, PipelineState]."""

    def __init__(
        self,
        pipeline: Any,
        store: ObjectStore,
        *,
        pipeline_kwargs: Mapping[str, Any] | None = None,
        preview_decoder: Any = None,
        hooked: bool = False,
        max_batch: int = 8,
        adapters_mb: int = 1024,
        threads: int | None = None,
        setup: Mapping[str, str] | None = None,
    ) -> None:
        """`pipeline_kwargs` are constants of every call. `preview_decoder` is an `AutoencoderTiny` for the pipeline's
        latents. `hooked`: the pipeline moves its networks between devices, so that only one may run at a time."""
        pipeline.set_progress_bar_config(disable=True)
        self._pipeline = pipeline
        self._signature = PipelineSignature.from_pipeline(pipeline)
        self._constants = dict(pipeline_kwargs or {})
        self._preview_decoder = preview_decoder
        self._turn: AbstractContextManager[Any] = Lock() if hooked else nullcontext()
        self._denoising = Lock()
        """Adapters change the networks for the call that takes a step: no other may take one meanwhile."""
        self._outputs, self._fetcher = Outputs(store), InputFetcher(store)
        denoisers = denoisers_of(pipeline)
        stop_before_steps(denoisers)
        self._layers = AdaptedLayers(denoisers[0]) if denoisers else None
        self._adapters = AdapterCache(denoisers[0], store, adapters_mb * MB) if denoisers else None
        self._limit = MemoryLimit(max_batch)
        self._threads = threads
        self._setup = dict(setup or {})

    @property
    def setup(self) -> Mapping[str, str]:
        return self._setup

    def counts(self) -> Mapping[str, float]:
        return counts.cache_counts("adapters", self._adapters.stats) if self._adapters else {}

    def fetch(self, job: GenerationJob) -> FetchedJob:
        self._signature.check(job)
        images = self._fetcher.fetch_all(job.inputs)
        adapter = None
        if job.adapter is not None:
            if self._adapters is None:
                raise JobError("this model takes no tuned models")
            with self._errors():
                adapter = AppliedAdapter(self._adapters.get(job.adapter).layers, job.adapter.strength)
        return FetchedJob(job, images, adapter)

    def encode(self, fetched: Sequence[FetchedJob]) -> list[PipelineState | JobError]:
        batches: dict[Hashable, list[int]] = {}
        for index, each in enumerate(fetched):
            batches.setdefault(_batch_key(each, index), []).append(index)
        states: dict[int, PipelineState | JobError] = {}
        most = self._limit.size
        for members in (each[first : first + most] for each in batches.values() for first in range(0, len(each), most)):
            jobs = [fetched[index] for index in members]
            try:
                call = self._begin(jobs)
            except JobError as error:
                if len(members) > 1:
                    raise RuntimeError(str(error)) from None  # tried again one by one
                states[members[0]] = error
                continue
            for place, index in enumerate(members):
                states[index] = PipelineState(fetched[index], call, place, call.run.done_steps)
        return [states[index] for index in range(len(fetched))]

    def step(self, states: Sequence[PipelineState]) -> None:
        for state in states:
            if state.call.run.error is not None:
                self._restart(state)
        call = states[0].call
        self._advance(call)
        for state in states:
            state.done_steps = call.run.done_steps

    def finish(self, state: PipelineState) -> Callable[[], Output]:
        if state.call.run.error is not None:
            self._restart(state)
        call = state.call
        with call.lock:
            while not call.run.ended:
                self._advance(call)
        frames = _frames(call.run.output)[state.index]
        if not np.isfinite(frames).all():
            raise NotFinite("the pipeline's result is not finite")
        if state.job.video is not None:
            frames = frames[: state.job.video.frames]
        pixels: Pixels = (frames * 255).round().clip(0, 255).astype(np.uint8)
        if state.job.video is None:
            image = pixels[0] if pixels.ndim == 4 else pixels
            return partial(
                self._outputs.store_image, state.job, fit(image, state.job.width, state.job.height, "smooth")
            )
        return partial(self._store_video, state.job, pixels, _audio(self._pipeline, call.run.output, state.index))

    def preview(self, state: PipelineState) -> Callable[[], Preview] | None:
        latents = state.call.run.latents
        if self._preview_decoder is None or latents is None:
            return None
        if latents.ndim == 3 and hasattr(self._pipeline, "_unpack_latents"):
            size = state.job.height, state.job.width, self._pipeline.vae_scale_factor
            latents = self._pipeline._unpack_latents(latents, *size)
        if latents.ndim == 5:  # the first frame
            latents = latents[:, :, 0]
        with translate_device_errors(), torch.no_grad():
            decoded = self._preview_decoder.decode(
                latents[state.index : state.index + 1].to(self._preview_decoder.dtype)
            )
        colours = (decoded.sample[0].float() / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8)
        pixels = colours.permute(1, 2, 0).cpu().numpy()
        return partial(self._outputs.store_preview, state.job, pixels, state.done_steps, state.total_steps)

    def _begin(self, jobs: Sequence[FetchedJob]) -> _Call:
        """A call that waits for its first step. Raises JobError for arguments that the pipeline refuses."""
        arguments = self._constants | self._signature.arguments([each.job for each in jobs], jobs[0].images)
        call = _Call(PipelineRun(self._pipeline, arguments), jobs[0].adapter, len(jobs))
        try:
            self._advance(call)
        except (ValueError, TypeError) as error:
            raise JobError(f"the model refuses this request: {error}".partition("\n")[0]) from None
        return call

    def _restart(self, state: PipelineState) -> None:
        """A call for this job alone, as far as the job was."""
        state.call, state.index = self._begin([state.fetched]), 0
        while state.call.run.done_steps < state.done_steps:
            self._advance(state.call)

    def _advance(self, call: _Call) -> None:
        with self._errors(call.size), self._turn, ExitStack() as stack:
            if call.run.is_denoising:
                stack.enter_context(self._denoising)
                if call.adapter is not None and self._layers is not None:
                    stack.enter_context(self._layers.applied_to_all(call.adapter))
            call.run.advance()
        if call.run.ended:
            self._limit.record_success(call.size)

    @contextmanager
    def _errors(self, size: int = 1) -> Iterator[None]:
        """Makes later calls smaller where one of several jobs failed: not all pipelines take several. What a pipeline
        refuses (ValueError, TypeError) says nothing about that."""
        try:
            with translate_device_errors():
                yield
        except Exception as error:
            if not isinstance(error, (ValueError, TypeError)):
                self._limit.record_failure(size)
            if isinstance(error, OutOfMemory) and self._adapters is not None:
                self._adapters.clear()
            raise

    def _store_video(self, job: GenerationJob, pixels: Pixels, audio: Audio | None) -> Output:
        assert job.video is not None
        size = (job.width - job.width % 2, job.height - job.height % 2)
        with tempfile.TemporaryDirectory(prefix="video-") as folder:
            file = Path(folder) / "video.mp4"
            writer = VideoWriter(
                file,
                rendered=(pixels.shape[2], pixels.shape[1]),
                size=size,
                frames=len(pixels),
                audio=audio if job.video.audio else None,
                fps=job.video.fps,
                threads=self._threads,
            )
            writer.write(pixels)
            writer.close()
            return self._outputs.store_video(job, file, None, writer.samples)


def _batch_key(fetched: FetchedJob, index: int) -> Hashable:
    """Jobs of equal keys go in one call. Those with images go alone."""
    job = fetched.job
    if job.inputs:
        return index
    adapter = (job.adapter.id, job.adapter.strength) if job.adapter else None
    video = (job.video.frames, job.video.fps) if job.video else None
    return job.width, job.height, job.steps, job.guidance, job.strength, bool(job.negative_prompt), video, adapter


def denoisers_of(pipeline: Any) -> list[torch.nn.Module]:
    """The networks that take steps; a pipeline may have one for each half of them."""
    names = ("transformer", "unet", "transformer_2", "unet_2")
    modules = [pipeline.components.get(name) for name in names]
    return [module for module in modules if isinstance(module, torch.nn.Module)]


def _frames(output: Any) -> Any:
    """Float images (B, H, W, C), or videos (B, F, H, W, C), in 0 to 1."""
    for name in ("frames", "images"):
        if name in output:
            return np.asarray(output[name])
    raise NotFinite(f"the pipeline answers with {type(output).__name__}, which has neither images nor frames")


def _audio(pipeline: Any, output: Any, index: int) -> Audio | None:
    samples = output.get("audio") if hasattr(output, "get") else None
    vocoder = getattr(pipeline, "vocoder", None)
    if samples is None or vocoder is None:
        return None
    channels = samples[index].float().cpu().numpy()
    if channels.ndim == 1 or len(channels) == 1:
        channels = np.broadcast_to(channels, (2, channels.shape[-1]))
    return Audio(np.ascontiguousarray(channels.clip(-1, 1), np.float32), int(vocoder.config.output_sampling_rate))


def _rgb(data: bytes) -> Image.Image:
    return open_image(data).convert("RGB")


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _first(names: frozenset[str], *candidates: str) -> str | None:
    return next((name for name in candidates if name in names), None)
