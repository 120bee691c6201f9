"""Preparation of a request: validation, inputs, plan, price."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from deployments.contract.job import Adapter
from deployments.contract.moderation import Tolerance, lowest
from deployments.contract.objects import ObjectStore
from deployments.telemetry.tracing import OFF, Tracer
from serve_app.accounts.api_key_auth import Caller
from serve_app.config.catalog import DefaultsByMode, Endpoint
from serve_app.inputs.geometry import megapixels
from serve_app.inputs.images import InputPicture
from serve_app.inputs.inputs import Inputs, InputVideo
from serve_app.inputs.settings import BadPicture, BadVideo
from serve_app.inputs.url_guard import UrlGuard, UrlRefused, asker
from serve_app.schemas import GenerationRequest
from serve_app.schemas.fields import Picture, PictureProblem
from serve_app.schemas.plan import Draft, ModelDefaults, Plan
from serve_app.schemas.video import DraftEnhanceRequest
from serve_app.submission.errors import FinetuneUnusable, Invalid
from serve_app.submission.input_storage import DraftProblem, find_draft
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


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """An endpoint as this service has it: its name, its entry in the catalog, and how each of its modes is done."""

    name: str
    endpoint: Endpoint
    defaults: DefaultsByMode


Input: TypeAlias = tuple[str, InputPicture | InputVideo]
"""What it is to the model, named as in the job, and the thing itself."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that may be submitted."""

    defaults: ModelDefaults
    inputs: list[Input]
    """Pictures, or a video: decoded, checked, and as the model is to get them."""
    plan: Plan
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
        return megapixels(self.plan.input_pixels)

    @property
    def output_mp(self) -> float:
        return megapixels(self.plan.area)


async def prepare(
    dependencies: Dependencies, caller: Caller, served_endpoint: ServedEndpoint, body: GenerationRequest
) -> Prepared:
    """Writes nothing. Raises Invalid naming the field, FinetuneUnusable, StorageOutOfReach or TooManyFetches."""
    asker.set(caller.organization)
    guard, endpoint = dependencies.guard, served_endpoint.endpoint
    defaults = served_endpoint.defaults[body.chosen_mode()]
    level = _approved_level(served_endpoint, caller, body)
    tolerance = Tolerance(level, lowest(endpoint.safety.ceilings, caller.ceilings))
    await _check_webhook(guard, body)
    adapter = await _adapter(dependencies, caller, defaults.model, body)
    if not defaults.image_prompts and getattr(body, "image_prompt", None):
        message = "This service has no model that reads image prompts (FLUX.1 Redux)"
        raise Invalid(["body", "image_prompt"], message, "image_prompt_not_available")
    pictures = await _load_pictures(dependencies.inputs, caller, body)
    prepared = await _prepare_pictures(dependencies.inputs, caller, body, pictures)
    video = await _load_video(dependencies.inputs, caller, body)
    inputs: list[Input] = [*prepared, *video]
    draft = None
    sizes = [(each.width, each.height) for _, each in inputs]
    if isinstance(body, DraftEnhanceRequest):
        draft = await _draft(dependencies, caller, served_endpoint.name, body)
        plan = body.plan(sizes, draft)
    else:
        plan = body.plan(sizes)
    plan = plan.completed(defaults, _pixels([*pictures, *video]))
    price = endpoint.price_of(body.chosen_mode()).millicredits(plan.area, plan.input_pixels, plan.seconds)
    return Prepared(defaults, inputs, plan, price, tolerance, adapter, draft, tuple(body.ignored_fields()))


def _approved_level(served_endpoint: ServedEndpoint, caller: Caller, body: GenerationRequest) -> int:
    safety = served_endpoint.endpoint.safety
    highest = caller.safety.get(served_endpoint.name, safety.approved)
    level = min(safety.default, highest) if body.safety_tolerance is None else body.safety_tolerance
    if level > highest:
        approved = list(range(highest + 1))
        message = f"Level {level} is not approved for this endpoint; approved levels: {approved}"
        raise Invalid(["body", "safety_tolerance"], message, "safety_tolerance_not_approved", approved=approved)
    return level


async def _check_webhook(guard: UrlGuard, body: GenerationRequest) -> None:
    if body.webhook_url:
        try:
            await guard.check(body.webhook_url)
        except UrlRefused as refusal:
            raise Invalid(["body", "webhook_url"], str(refusal), "url_refused") from None


async def _adapter(dependencies: Dependencies, caller: Caller, queue: str, body: GenerationRequest) -> Adapter | None:
    wanted = body.finetune()
    if wanted is None:
        return None
    finetune_id, strength = wanted
    weights = await dependencies.find_weights(finetune_id, caller.project.id, queue)
    if weights is None:
        raise FinetuneUnusable
    return Adapter(finetune_id, weights, strength)


async def _draft(dependencies: Dependencies, caller: Caller, name: str, body: DraftEnhanceRequest) -> Draft:
    try:
        return await find_draft(dependencies.tasks, dependencies.objects, caller.project.id, name, body.draft_cache)
    except DraftProblem as problem:
        raise Invalid(["body", "draft_cache"], str(problem), problem.kind) from None


async def _load_video(files: Inputs, caller: Caller, body: GenerationRequest) -> list[Input]:
    sent = body.video_input()
    if sent is None:
        return []
    try:
        return [("start_video", await files.video(sent, caller.organization))]
    except BadVideo as problem:
        raise Invalid(["body", "start_video"], str(problem), "video_invalid") from None


async def _load_pictures(files: Inputs, caller: Caller, body: GenerationRequest) -> list[Picture]:
    """All input pictures, as they were sent. The first bad one is named."""
    sent = body.image_inputs()
    owner = caller.organization
    loaded = await asyncio.gather(*(files.picture(each.value, owner) for each in sent), return_exceptions=True)
    pictures: list[Picture] = []
    for each, image in zip(sent, loaded, strict=True):
        if isinstance(image, BadPicture):
            raise Invalid(["body", *each.loc], str(image), "image_invalid")
        if isinstance(image, BaseException):
            raise image
        pictures.append(Picture(each.role, image))
    return pictures


async def _prepare_pictures(
    files: Inputs, caller: Caller, body: GenerationRequest, pictures: list[Picture]
) -> list[Picture]:
    """The pictures as the model is to get them."""
    try:
        return await files.prepared(caller.organization, lambda: body.prepared(pictures)) if pictures else []
    except PictureProblem as problem:
        raise Invalid(["body", problem.field], str(problem), problem.kind) from None


def _pixels(sent: list[Input]) -> int:
    """What counts as input. A mask does not: it only says where."""
    return sum(each.width * each.height for role, each in sent if role != "mask")
