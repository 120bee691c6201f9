"""Preparation of a request: validation, inputs, price. Writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from deployments.contract.job import Adapter, InputKeys
from deployments.contract.moderation import Tolerance, lowest
from deployments.contract.objects import ObjectStore
from deployments.telemetry.tracing import OFF, Tracer
from serve_app.accounts.api_key_auth import Caller
from serve_app.config.catalog import DefaultsByMode, Endpoint, Safety
from serve_app.inputs.fetch import FileLimits
from serve_app.inputs.images import InputImage
from serve_app.inputs.inputs import Inputs, InputVideo
from serve_app.inputs.resolver import dns_tenant
from serve_app.inputs.settings import IMAGES, VIDEOS, BadImage, BadVideo
from serve_app.inputs.ssrf import UrlGuard, UrlRefused
from serve_app.schemas import GenerationRequest
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import ImageProblem, RequestImage
from serve_app.schemas.tolerant import UPSAMPLING
from serve_app.schemas.video import LONGEST, SHORTEST, DraftEnhanceRequest
from serve_app.submission.errors import FinetuneUnusable, Invalid
from serve_app.submission.input_storage import UPLOAD, DraftProblem, File, find_draft, read_upload
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.store import TaskStore

FindWeights: TypeAlias = Callable[[str, str, str], Awaitable[str | None]]
"""Returns the object that holds a finetune's weights, by its id, project and model, if it may be used."""


@dataclass(frozen=True, slots=True)
class SubmissionContext:
    tasks: TaskStore
    objects: ObjectStore
    guard: UrlGuard
    """Guard of every address that a request names."""
    inputs: Inputs
    find_weights: FindWeights
    seal: Callable[[str], str]
    """Encrypts a webhook's secret, as it is stored."""
    tracer: Tracer = OFF
    rewriting: frozenset[str] = frozenset(("prompts", "edits"))
    """Kinds of prompts that the rewriter gets, by the names of `rewriter.asked_for`."""


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """An endpoint of this service: its name, its entry in the catalog, and the defaults of each of its modes."""

    name: str
    endpoint: Endpoint
    defaults: DefaultsByMode


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """A task that may be submitted once its files are stored."""

    payload: TaskPayload
    files: Mapping[str, File]
    """Checked inputs by the object keys of the payload, as the model gets them."""
    price: int
    """Milli-credits."""
    draft: str = ""
    """Id of the task whose objects this one is made of."""


class RequestPreparation:
    def __init__(
        self, context: SubmissionContext, caller: Caller, served_endpoint: ServedEndpoint, body: GenerationRequest
    ) -> None:
        self._context = context
        self._caller = caller
        self._endpoint = served_endpoint
        self._body = body

    async def prepare(self, task_id: str) -> PreparedTask:
        """Raises Invalid naming the field, FinetuneUnusable, StorageUnreachable or TooManyFetches."""
        dns_tenant.set(self._caller.organization)
        endpoint, body = self._endpoint.endpoint, self._body
        defaults = self._endpoint.defaults[body.chosen_mode()]
        safety = self._tolerance(endpoint.safety)
        if body.webhook_url:
            try:
                await self._context.guard.check(body.webhook_url)
            except UrlRefused as refusal:
                raise Invalid(["body", "webhook_url"], str(refusal), "url_refused") from None
        finetune = body.finetune()
        adapter = await self._adapter(*finetune, defaults.model) if finetune else None
        self._check_fields(defaults)

        images: list[RequestImage] = []
        video = draft = None
        if body.has_inputs:
            images, video = await self._load_images(), await self._load_video()
        if isinstance(body, DraftEnhanceRequest):
            draft = await self._find_draft(body.draft_cache)
        prepared_images = await self._prepare_images(images) if images else []
        sizes = [(each.image.width, each.image.height) for each in prepared_images]
        resolved = body.resolve(defaults, [*sizes, (video.width, video.height)] if video else sizes, draft)
        if video is not None:
            _check_length(video, resolved.seconds)
        # A mask does not count as input: it only says where.
        sent = [*(each.image for each in images if each.role != "mask"), *([video] if video else ())]
        resolved = replace(resolved, input_pixels=sum(each.width * each.height for each in sent))

        inputs, files = draft.inputs if draft else InputKeys(), dict[str, File]()
        if prepared_images or video:
            inputs, files = _name_files(task_id, prepared_images, video)
        payload = TaskPayload(
            request=resolved,
            inputs=inputs,
            adapter=adapter,
            safety=safety,
            warnings=self._warnings(is_edit=bool(inputs.references)),
        )
        price = endpoint.get_price(body.chosen_mode())
        millicredits = price.millicredits(resolved.area, resolved.input_pixels, resolved.seconds)
        return PreparedTask(payload, files, millicredits, draft.task if draft else "")

    def _tolerance(self, safety: Safety) -> Tolerance:
        body = self._body
        highest = self._caller.safety.get(self._endpoint.name, safety.approved)
        level = min(safety.default, highest) if body.safety_tolerance is None else body.safety_tolerance
        if level > highest:
            levels = list(range(highest + 1))
            message = f"Level {level} is not approved for this endpoint; approved levels: {levels}"
            raise Invalid(["body", "safety_tolerance"], message, "safety_tolerance_not_approved", approved=levels)
        return Tolerance(level, lowest(safety.ceilings, self._caller.ceilings))

    async def _adapter(self, finetune_id: str, strength: float, model: str) -> Adapter:
        weights = await self._context.find_weights(finetune_id, self._caller.project.id, model)
        if weights is None:
            raise FinetuneUnusable
        return Adapter(finetune_id, weights, strength)

    def _check_fields(self, defaults: ModelDefaults) -> None:
        """Raises Invalid for a field that the endpoint has and its model does not take."""
        body = self._body
        if not defaults.image_prompts and getattr(body, "image_prompt", None):
            message = "This service has no model that reads image prompts (FLUX.1 Redux)"
            raise Invalid(["body", "image_prompt"], message, "image_prompt_not_available")
        for name in sorted(defaults.unsupported):
            value = getattr(body, name, None)
            if value is not None and value is not False and value != "":
                raise Invalid(["body", name], f"The model {defaults.model} takes no {name}", "not_supported_by_model")
        if defaults.one_image and len(getattr(body, "images", None) or ()) > 1:
            raise Invalid(["body", "images"], f"The model {defaults.model} takes one image", "not_supported_by_model")

    async def _load_images(self) -> list[RequestImage]:
        """Returns all input images as they were sent. Raises Invalid, which names the first bad one."""
        image_inputs = self._body.image_inputs()
        results = await asyncio.gather(*(self._load_image(each.value) for each in image_inputs), return_exceptions=True)
        images: list[RequestImage] = []
        for each, image in zip(image_inputs, results, strict=True):
            if isinstance(image, BadImage):
                raise Invalid(["body", *each.loc], str(image), "image_invalid")
            if isinstance(image, BaseException):
                raise image
            images.append(RequestImage(each.role, image, each.loc[0]))
        return images

    async def _load_image(self, value: str) -> InputImage:
        return await self._context.inputs.image(await self._open_upload(value, IMAGES), self._caller.organization)

    async def _load_video(self) -> InputVideo | None:
        value = self._body.video_input()
        if value is None:
            return None
        try:
            file = await self._open_upload(value, VIDEOS)
            return await self._context.inputs.video(file, self._caller.organization)
        except BadVideo as problem:
            raise Invalid(["body", "start_video"], str(problem), "video_invalid") from None

    async def _open_upload(self, value: str, limits: FileLimits) -> str | bytes:
        """Returns the file, where `value` refers to an upload; else `value`."""
        if not value.startswith(UPLOAD):
            return value
        return await read_upload(self._context.tasks, self._context.objects, self._caller.project.id, value, limits)

    async def _prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        """Returns the images as the model is to get them."""
        try:
            return await self._context.inputs.prepare(
                self._caller.organization, lambda: self._body.prepare_images(images)
            )
        except ImageProblem as problem:
            raise Invalid(["body", problem.field], str(problem), problem.kind) from None

    async def _find_draft(self, reference: str) -> Draft:
        tasks, project = self._context.tasks, self._caller.project.id
        try:
            return await find_draft(tasks, self._context.objects, project, self._endpoint.name, reference)
        except DraftProblem as problem:
            raise Invalid(["body", "draft_cache"], str(problem), problem.kind) from None

    def _warnings(self, *, is_edit: bool) -> tuple[str, ...]:
        ignored, rewriting = self._body.ignored_fields(), self._context.rewriting
        if not self._body.asks_for_rewriting() or ("edits" if is_edit else "prompts") in rewriting:
            return ignored
        prompts = "prompts of edits" if "prompts" in rewriting else "prompts"
        return (*ignored, f"{UPSAMPLING} has no effect: this service does not rewrite {prompts}")


def _name_files(
    task_id: str, images: list[RequestImage], video: InputVideo | None
) -> tuple[InputKeys, dict[str, File]]:
    """Returns the object keys of a task's inputs, and the files by their keys."""
    files: dict[str, File] = {}
    references: list[str] = []
    single: dict[str, str] = {}
    workflow_files: list[tuple[str, str]] = []
    named: list[tuple[str, File, str]] = [*images, *([("start_video", video, "")] if video else ())]
    for number, (role, file, name) in enumerate(named):
        key = f"inputs/{task_id}/{number}.{file.extension}"
        files[key] = file
        if role == "references":
            references.append(key)
        elif role == "workflow":
            workflow_files.append((name, key))
        else:
            single[role] = key
    return InputKeys(references=tuple(references), files=tuple(workflow_files), **single), files


def _check_length(start: InputVideo, seconds: int) -> None:
    """Raises Invalid where a start video and the `seconds` that follow it are longer than a video may be."""
    longest = int(LONGEST - start.seconds)
    if seconds > longest:
        most = f"{longest} s may follow" if longest >= SHORTEST else f"it may have {LONGEST - SHORTEST} s"
        message = f"A start video of {start.seconds:.4g} s and {seconds} s are more than {LONGEST} s; at most {most}"
        raise Invalid(["body", "duration"], message, "video_too_long", max_seconds=LONGEST)
