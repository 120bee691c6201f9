"""The tools that models call: each a name, what it takes, and what it does."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, get_args, get_origin

from gen_serve_client import AsyncClient
from gen_serve_client.types import TaskResult
from mcp_types import ContentBlock
from pydantic import BaseModel, ConfigDict, Field

from deployments.contract.media_type import media_type
from serve_app.accounts.callers import Caller
from serve_app.accounts.roles import Permission
from serve_app.config.endpoint import Endpoint
from serve_app.http.mcp import content
from serve_app.http.services import Services
from serve_app.requests.image_klein import MAX_REFERENCES
from serve_app.submission.dependencies import Offer
from serve_app.tasks.task import TERMINAL, Status

Tell: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Progress from 0 to 1, and what is going on."""
DEFAULT_ENDPOINT: Final = "gen-3-image-klein"
_LONGEST_S: Final = 300.0
_LOOK_S: Final = 1.0
"""How long a look at a task waits for it to end: so often its progress is told."""
_ID_CHARS: Final = 64
_ENDED: Final = {status.value for status in TERMINAL | {Status.NOT_FOUND}}


class NotDone(Exception):
    """Why a tool did not do what it was called for. Its text is fit for the caller."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    itself: AsyncClient
    """The service, as any client has it: what holds for requests holds for tools."""
    services: Services
    offers: Mapping[str, Offer]
    caller: Caller
    tell: Tell


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


Endpointed = Annotated[str, Field(description="As list_models has them")]
Seconds = Annotated[float, Field(ge=0, le=_LONGEST_S, description="How long to wait; the tool wait goes on with it")]
Options = Annotated[dict[str, Any], Field(description="Further fields of the endpoint, as list_models has them")]
TaskId = Annotated[str, Field(max_length=_ID_CHARS, description="The task's id")]


class ListModels(_Arguments):
    """What there is to generate with: endpoints, their prices in credits, their fields; and the credits left."""

    endpoint: str | None = Field(default=None, description="Only this one, with the whole schema of its fields")


class Generate(_Arguments):
    """Make a picture or a video from a text. Answers with the picture, or with the task's id if it takes longer."""

    prompt: str
    endpoint: Endpointed = DEFAULT_ENDPOINT
    options: Options = {}
    wait_s: Seconds = 60


class Edit(_Arguments):
    """Change a picture as a text says, or make one from several."""

    prompt: str | None = Field(default=None, description="What to change; some endpoints do one thing, and take none")
    images: list[str] = Field(
        min_length=1,
        max_length=MAX_REFERENCES,
        description="Each an https URL, a picture in base64, or the id of a task that made one",
    )
    endpoint: Endpointed = DEFAULT_ENDPOINT
    options: Options = {}
    wait_s: Seconds = 60


class Wait(_Arguments):
    """Wait for a task to end, and answer as generate does."""

    task_id: TaskId
    wait_s: Seconds = 60


class Fetch(_Arguments):
    """How a task is, at once; of one that is ready its picture, and a link that is good for some minutes."""

    task_id: TaskId


class Cancel(_Arguments):
    """End a task that is on its way. What was held for it is given back."""

    task_id: TaskId


async def list_models(call: Call, asked: ListModels) -> list[ContentBlock]:
    if asked.endpoint is not None:
        offer = _offer(call, asked.endpoint)
        schema = offer.endpoint.request_type.model_json_schema()
        return [content.text({**_told(offer), "schema": schema})]
    models = [_told(offer) for path, offer in call.offers.items() if path.removeprefix("/v1/") == offer.name]
    return [content.text({"models": models, "credits": await call.itself.credits()})]


async def generate(call: Call, asked: Generate) -> list[ContentBlock]:
    return await _made(call, asked.endpoint, {**asked.options, "prompt": asked.prompt}, asked.wait_s)


async def edit(call: Call, asked: Edit) -> list[ContentBlock]:
    endpoint = _offer(call, asked.endpoint).endpoint
    if not call.caller.may(Permission.GENERATE):  # before anything is read for it
        raise NotDone(f"Not allowed: the role {call.caller.role.value} has no permission to generate")
    images = [await _image(call, image) for image in asked.images]
    prompt = {} if asked.prompt is None else {"prompt": asked.prompt}
    body = {**asked.options, **prompt, **_as_fields(endpoint, images)}
    return await _made(call, asked.endpoint, body, asked.wait_s)


async def wait(call: Call, asked: Wait) -> list[ContentBlock]:
    return await content.of_task(call.services, await _waited(call, asked.task_id, asked.wait_s))


async def fetch(call: Call, asked: Fetch) -> list[ContentBlock]:
    return await content.of_task(call.services, await _waited(call, asked.task_id, 0))


async def cancel(call: Call, asked: Cancel) -> list[ContentBlock]:
    task = await call.itself.cancel(asked.task_id)
    return [content.text({"id": task["id"], "status": task["status"]})]


async def _made(call: Call, endpoint: str, body: Mapping[str, Any], wait_s: float) -> list[ContentBlock]:
    submitted = await call.itself.submit(_offer(call, endpoint).name, body)
    task = await _waited(call, submitted["id"], wait_s)
    made = await content.of_task(call.services, task)
    warnings = submitted.get("warnings")
    if warnings and task["status"] not in _ENDED:  # afterwards its details have them
        made.append(content.text({"warnings": warnings}))
    return made


async def _waited(call: Call, task_id: str, wait_s: float) -> TaskResult:
    """The task once it has ended, or after that time. Raises NotDone for one that came to nothing."""
    give_up = time.monotonic() + wait_s
    while True:
        began = time.monotonic()
        task = await call.itself.poll(task_id, wait=_LOOK_S)
        await call.tell(task.get("progress") or 0.0, task["status"])
        if task["status"] in _ENDED or time.monotonic() >= give_up:
            break
        await asyncio.sleep(began + _LOOK_S - time.monotonic())  # where many wait, it was answered at once
    if task["status"] in _ENDED and task["status"] != Status.READY.value:
        details = task.get("details")
        raise NotDone(f"{task['status']}: {json.dumps(details)}" if details else task["status"])
    return task


async def _image(call: Call, image: str) -> str:
    """What a field of an endpoint takes. A task's result goes in as it is stored: its link may lead to this machine."""
    task = await call.services.tasks.get(image) if len(image) <= _ID_CHARS else None
    if task is None:
        return image
    if task.status is not Status.READY or task.result is None:
        raise NotDone(f"The task {image} has no picture: it is {task.status.value}")
    if not media_type(task.result["key"]).startswith("image/"):
        raise NotDone(f"The task {image} made no picture")
    return base64.b64encode(await call.services.objects.get(task.result["key"])).decode()


def _as_fields(endpoint: Endpoint, images: Sequence[str]) -> dict[str, Any]:
    """By the names that the endpoint has for pictures that are to be changed. Raises NotDone."""
    form = endpoint.request_type
    names = [name for name, role in form.image_fields.items() if role == "references"]
    if not names:
        raise NotDone("This endpoint takes its pictures by fields of their own: pass them in options")
    if len(names) == 1 and _is_list(form.model_fields[names[0]].annotation):
        return {names[0]: list(images)}
    if len(images) > len(names):
        raise NotDone(f"This endpoint takes at most {len(names)} pictures")
    return dict(zip(names, images, strict=False))


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) is list or any(_is_list(each) for each in get_args(annotation))


def _offer(call: Call, endpoint: str) -> Offer:
    offer = call.offers.get(f"/v1/{endpoint.removeprefix('/').removeprefix('v1/')}")
    if offer is None:
        raise NotDone(f"There is no endpoint {endpoint[:100]}: list_models has them")
    return offer


def _told(offer: Offer) -> dict[str, Any]:
    fields = offer.endpoint.request_type.model_fields
    prices = {mode or "price": offer.endpoint.price_of(mode).model_dump() for mode in offer.endpoint.ways}
    return {
        "endpoint": offer.name,
        "summary": offer.endpoint.summary,
        "credits": prices,
        "needs": [name for name, field in fields.items() if field.is_required()],
        "takes": [name for name, field in fields.items() if not field.is_required()],
    }


A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    name: str
    arguments: type[A]
    """Its docstring tells models what the tool is for."""
    run: Callable[[Call, A], Awaitable[list[ContentBlock]]]
    reads_only: bool = False


TOOLS: Final[Mapping[str, Tool[Any]]] = {
    tool.name: tool
    for tool in (
        Tool("list_models", ListModels, list_models, reads_only=True),
        Tool("generate", Generate, generate),
        Tool("edit", Edit, edit),
        Tool("wait", Wait, wait, reads_only=True),
        Tool("fetch", Fetch, fetch, reads_only=True),
        Tool("cancel", Cancel, cancel),
    )
}
