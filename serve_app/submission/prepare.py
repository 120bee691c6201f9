"""Preparation of a request: validation, inputs, plan, price."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from deployments.contract.job import Adapter
from deployments.contract.moderation import Tolerance, lowest
from deployments.contract.objects import ObjectStore
from deployments.contract.request import ResolvedRequest
from deployments.telemetry.tracing import OFF, Tracer
from serve_app.accounts.api_key_auth import Caller
from serve_app.config.catalog import DefaultsByMode, Endpoint
from serve_app.inputs.fetch import FileLimits
from serve_app.inputs.geometry import megapixels
from serve_app.inputs.images import InputImage
from serve_app.inputs.inputs import Inputs, InputVideo
from serve_app.inputs.settings import IMAGES, VIDEOS, BadImage, BadVideo
from serve_app.inputs.url_guard import UrlGuard, UrlRefused, dns_tenant
from serve_app.schemas import GenerationRequest
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import ImageProblem, RequestImage
from serve_app.schemas.tolerant import UPSAMPLING
from serve_app.schemas.video import LONGEST, SHORTEST, DraftEnhanceRequest
from serve_app.submission.errors import FinetuneUnusable, Invalid
from serve_app.submission.input_storage import UPLOAD, DraftProblem, find_draft, read_upload
from serve_app.tasks.store import TaskStore

FindWeights: TypeAlias = Callable[[str, str, str], Awaitable[str | None]]
"""By a finetune's id, its project and the model it is for: the object that holds its weights, if it may be used."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    tasks: TaskStore
    objects: ObjectStore
    guard: UrlGuard
    """In front of every address that a request names."""
    inputs: Inputs
    """The gate for the files that a request sends."""
    find_weights: FindWeights
    seal: Callable[[str], str]
    """Encrypts a webhook's secret, as it is stored."""
    tracer: Tracer = OFF
    rewriting: frozenset[str] = frozenset(("prompts", "edits"))
    """The prompts that the rewriter gets, by the names of `rewriter.asked_for`."""


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """An endpoint as this service has it: its name, its entry in the catalog, and how each of its modes is done."""

    name: str
    endpoint: Endpoint
    defaults: DefaultsByMode


Input: TypeAlias = tuple[str, InputImage | InputVideo]
"""What it is to the model, named as in the job, and the thing itself."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that may be submitted."""

    defaults: ModelDefaults
    inputs: list[Input]
    """Images, or a video: decoded, checked, and as the model is to get them."""
    resolved: ResolvedRequest
    price: int
    """Milli-credits."""
    tolerance: Tolerance
    adapter: Adapter | None
    """Of the finetune that is asked for."""
    draft: Draft | None = None
    """What is to be made of it has the same inputs, which are stored already."""
    warnings: tuple[str, ...] = ()
    """What of it can't be done, though it may be submitted; fit for the client's eyes."""

    @property
    def input_mp(self) -> float:
        """Megapixels of 2^20 pixels, 2 decimals."""
        return megapixels(self.resolved.input_pixels)

    @property
    def output_mp(self) -> float:
        return megapixels(self.resolved.area)


async def prepare(
    dependencies: Dependencies, caller: Caller, served_endpoint: ServedEndpoint, body: GenerationRequest
) -> PreparedRequest:
    """Writes nothing. Raises Invalid naming the field, FinetuneUnusable, StorageOutOfReach or TooManyFetches."""
    dns_tenant.set(caller.organization)
    guard, endpoint = dependencies.guard, served_endpoint.endpoint
    defaults = served_endpoint.defaults[body.chosen_mode()]
    level = _resolve_level(served_endpoint, caller, body)
    tolerance = Tolerance(level, lowest(endpoint.safety.ceilings, caller.ceilings))
    await _check_webhook(guard, body)
    adapter = await _adapter(dependencies, caller, defaults.model, body)
    if not defaults.image_prompts and getattr(body, "image_prompt", None):
        message = "This service has no model that reads image prompts (FLUX.1 Redux)"
        raise Invalid(["body", "image_prompt"], message, "image_prompt_not_available")
    for name in sorted(defaults.unsupported):
        value = getattr(body, name, None)
        if value is not None and value is not False and value != "":
            raise Invalid(["body", name], f"The model {defaults.model} takes no {name}", "not_supported_by_model")
    if defaults.one_image and len(getattr(body, "images", None) or ()) > 1:
        raise Invalid(["body", "images"], f"The model {defaults.model} takes one image", "not_supported_by_model")
    images = await _load_images(dependencies, caller, body)
    request_images = await _prepare_images(dependencies.inputs, caller, body, images)
    video = await _load_video(dependencies, caller, body)
    video_inputs: list[Input] = [("start_video", each) for each in video]
    inputs: list[Input] = [*request_images, *video_inputs]
    draft = None
    sizes = [(each.width, each.height) for _, each in inputs]
    if isinstance(body, DraftEnhanceRequest):
        draft = await _draft(dependencies, caller, served_endpoint.name, body)
    resolved = replace(body.resolve(defaults, sizes, draft), input_pixels=_pixels([*images, *video_inputs]))
    for start in video:
        _check_length(start, resolved)
    price = endpoint.get_price(body.chosen_mode()).millicredits(resolved.area, resolved.input_pixels, resolved.seconds)
    warnings = (*body.ignored_fields(), *_rewriting_warnings(dependencies, body, inputs))
    return PreparedRequest(defaults, inputs, resolved, price, tolerance, adapter, draft, warnings)


def _rewriting_warnings(dependencies: Dependencies, body: GenerationRequest, inputs: list[Input]) -> Iterator[str]:
    kind = "edits" if any(role == "references" for role, _ in inputs) else "prompts"
    if body.asks_for_rewriting() and kind not in dependencies.rewriting:
        prompts = "prompts of edits" if "prompts" in dependencies.rewriting else "prompts"
        yield f"{UPSAMPLING} has no effect: this service does not rewrite {prompts}"


def _resolve_level(served_endpoint: ServedEndpoint, caller: Caller, body: GenerationRequest) -> int:
    safety = served_endpoint.endpoint.safety
    highest = caller.safety.get(served_endpoint.name, safety.approved)
    level = min(safety.default, highest) if body.safety_tolerance is None else body.safety_tolerance
    if level > highest:
        levels = list(range(highest + 1))
        message = f"Level {level} is not approved for this endpoint; approved levels: {levels}"
        raise Invalid(["body", "safety_tolerance"], message, "safety_tolerance_not_approved", approved=levels)
    return level


async def _check_webhook(guard: UrlGuard, body: GenerationRequest) -> None:
    if body.webhook_url:
        try:
            await guard.check(body.webhook_url)
        except UrlRefused as refusal:
            raise Invalid(["body", "webhook_url"], str(refusal), "url_refused") from None


async def _adapter(dependencies: Dependencies, caller: Caller, queue: str, body: GenerationRequest) -> Adapter | None:
    finetune = body.finetune()
    if finetune is None:
        return None
    finetune_id, strength = finetune
    weights = await dependencies.find_weights(finetune_id, caller.project.id, queue)
    if weights is None:
        raise FinetuneUnusable
    return Adapter(finetune_id, weights, strength)


async def _draft(dependencies: Dependencies, caller: Caller, name: str, body: DraftEnhanceRequest) -> Draft:
    try:
        return await find_draft(dependencies.tasks, dependencies.objects, caller.project.id, name, body.draft_cache)
    except DraftProblem as problem:
        raise Invalid(["body", "draft_cache"], str(problem), problem.kind) from None


async def _open_upload(dependencies: Dependencies, caller: Caller, value: str, limits: FileLimits) -> str | bytes:
    """The file, where `value` refers to an upload; else `value`."""
    if not value.startswith(UPLOAD):
        return value
    return await read_upload(dependencies.tasks, dependencies.objects, caller.project.id, value, limits)


async def _load_video(dependencies: Dependencies, caller: Caller, body: GenerationRequest) -> list[InputVideo]:
    value = body.video_input()
    if value is None:
        return []
    try:
        file = await _open_upload(dependencies, caller, value, VIDEOS)
        return [await dependencies.inputs.video(file, caller.organization)]
    except BadVideo as problem:
        raise Invalid(["body", "start_video"], str(problem), "video_invalid") from None


def _check_length(start: InputVideo, plan: ResolvedRequest) -> None:
    """Raises Invalid where a start video and what follows it are longer than a video may be."""
    longest = int(LONGEST - start.seconds)
    if plan.seconds > longest:
        most = f"{longest} s may follow" if longest >= SHORTEST else f"it may have {LONGEST - SHORTEST} s"
        message = (
            f"A start video of {start.seconds:.4g} s and {plan.seconds} s are more than {LONGEST} s; at most {most}"
        )
        raise Invalid(["body", "duration"], message, "video_too_long", max_seconds=LONGEST)


async def _load_images(dependencies: Dependencies, caller: Caller, body: GenerationRequest) -> list[RequestImage]:
    """All input images, as they were sent. The first bad one is named."""

    async def load(value: str) -> InputImage:
        file = await _open_upload(dependencies, caller, value, IMAGES)
        return await dependencies.inputs.image(file, caller.organization)

    image_inputs = body.image_inputs()
    results = await asyncio.gather(*(load(each.value) for each in image_inputs), return_exceptions=True)
    images: list[RequestImage] = []
    for each, image in zip(image_inputs, results, strict=True):
        if isinstance(image, BadImage):
            raise Invalid(["body", *each.loc], str(image), "image_invalid")
        if isinstance(image, BaseException):
            raise image
        images.append(RequestImage(each.role, image))
    return images


async def _prepare_images(
    files: Inputs, caller: Caller, body: GenerationRequest, images: list[RequestImage]
) -> list[RequestImage]:
    """The images as the model is to get them."""
    try:
        return await files.prepare(caller.organization, lambda: body.prepare_images(images)) if images else []
    except ImageProblem as problem:
        raise Invalid(["body", problem.field], str(problem), problem.kind) from None


def _pixels(inputs: list[Input]) -> int:
    """What counts as input. A mask does not: it only says where."""
    return sum(each.width * each.height for role, each in inputs if role != "mask")
