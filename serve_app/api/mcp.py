"""The MCP server at `/mcp`: the service's tools for models, by a key or an OAuth token.

Any replica answers any request: nothing is kept between two of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

import httpx2
from fastapi import FastAPI, HTTPException
from gen_serve_client import AsyncClient, GenServeError, Retries
from gen_serve_client.types import TaskResult
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from deployments.contract import objects
from deployments.contract.job import media_type
from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.roles import Permission
from serve_app.api.auth import MCP, RESOURCE_METADATA, authenticate, has_key_or_token, quote_string
from serve_app.api.errors import http_error_response
from serve_app.api.hosts import public_base
from serve_app.api.routes.schemas import rejection_error
from serve_app.api.services import Services
from serve_app.config.catalog import Endpoint
from serve_app.schemas.image_klein import MAX_REFERENCES
from serve_app.storage import connection
from serve_app.submission.input_storage import UPLOAD, upload_key
from serve_app.submission.prepare import ServedEndpoint
from serve_app.tasks.rejections import TaskRejected
from serve_app.tasks.task import TERMINAL, Status

logger = logging.getLogger(__name__)

_LARGEST: Final = 2**20
"""Bytes of an image that is shown as it is; of a larger one, its thumbnail."""
_FACTS: Final = ("id", "status", "progress", "cost", "details")
_RESULT_FACTS: Final = ("seed", "duration", "prompt")
"""Of a result, beside its file."""


def text_content(value: object) -> TextContent:
    return TextContent(type="text", text=value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


async def task_content(services: Services, task: TaskResult) -> list[ContentBlock]:
    """How it stands, and, once it is ready, the image or the video's link."""
    body = cast(Mapping[str, Any], task)
    facts = {name: body[name] for name in _FACTS if body.get(name) is not None}
    result = body.get("result")
    if not result:
        return [text_content(facts)]
    facts |= {name: result[name] for name in _RESULT_FACTS if name in result}
    return [text_content(facts), *await _result_image(services, body["id"]), _link(result["sample"])]


async def _result_image(services: Services, task_id: str) -> list[ContentBlock]:
    task = await services.tasks.store.reads.get(task_id)
    result = task.result if task is not None and task.status is Status.READY else None
    if not result:
        return []
    for key in (result.key, result.thumbnail):
        if key and media_type(key).startswith("image/"):
            with suppress(FileNotFoundError):  # no longer kept
                data = await services.objects.get(key)
                if len(data) <= _LARGEST:
                    return [ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=media_type(key))]
    return []


def _link(url: str) -> ResourceLink:
    name = url.partition("?")[0].rpartition("/")[2]
    return ResourceLink(type="resource_link", uri=url, name=name, mime_type=media_type(name))


Tell: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Progress from 0 to 1, and what is going on."""
DEFAULT_ENDPOINT: Final = "gen-3-image-klein"
_LONGEST_S: Final = 300.0
_LONGEST_SILENCE_S: Final = 50.0
"""Less than load balancers wait for the beginning of an answer."""
_LOOK_S: Final = 1.0
"""How long a look at a task waits for it to end: so often its progress is told."""
_ID_CHARS: Final = 64
_TERMINAL: Final = {status.value for status in TERMINAL | {Status.NOT_FOUND}}


class NotDone(Exception):
    """Why a tool did not do what it was called for. Its text is fit for the caller."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    itself: AsyncClient
    """The service, as any client has it: what holds for requests holds for tools."""
    services: Services
    served_endpoints: Mapping[str, ServedEndpoint]
    caller: Caller
    tell: Tell
    longest_wait_s: float
    """Time limit of the answer: one without events shows no sign of life before."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


EndpointName = Annotated[str, Field(description="As list_models has them")]
Seconds = Annotated[float, Field(ge=0, le=_LONGEST_S, description="How long to wait; the tool wait goes on with it")]
Options = Annotated[dict[str, Any], Field(description="Further fields of the endpoint, as list_models has them")]
TaskId = Annotated[str, Field(max_length=_ID_CHARS, description="The task's id")]


class ListModels(_Arguments):
    """What there is to generate with: endpoints, their prices in credits, their fields; and the credits left."""

    endpoint: str | None = Field(default=None, description="Only this one, with the whole schema of its fields")


class Generate(_Arguments):
    """Make an image or a video from a text. Answers with the image, or with the task's id if it takes longer."""

    prompt: str
    endpoint: EndpointName = DEFAULT_ENDPOINT
    options: Options = {}
    wait_s: Seconds = 60


class Edit(_Arguments):
    """Change an image as a text says, or make one from several."""

    prompt: str | None = Field(default=None, description="What to change; some endpoints do one thing, and take none")
    images: list[str] = Field(
        min_length=1,
        max_length=MAX_REFERENCES,
        description="Each an https URL, an image in base64, or the id of a task that made one",
    )
    endpoint: EndpointName = DEFAULT_ENDPOINT
    options: Options = {}
    wait_s: Seconds = 60


class Wait(_Arguments):
    """Wait for a task to end, and answer as generate does."""

    task_id: TaskId
    wait_s: Seconds = 60


class Fetch(_Arguments):
    """How a task is, at once; of one that is ready its image, and a link that is good for some minutes."""

    task_id: TaskId


class Cancel(_Arguments):
    """End a task that is on its way. What was held for it is given back."""

    task_id: TaskId


async def list_models(call: Call, arguments: ListModels) -> list[ContentBlock]:
    if arguments.endpoint is not None:
        served_endpoint = _find_endpoint(call, arguments.endpoint)
        schema = served_endpoint.endpoint.request_type.model_json_schema()
        return [text_content({**_summary(served_endpoint), "schema": schema})]
    models = [
        _summary(served_endpoint)
        for path, served_endpoint in call.served_endpoints.items()
        if path.removeprefix("/v1/") == served_endpoint.name
    ]
    return [text_content({"models": models, "credits": await call.itself.credits()})]


async def generate(call: Call, arguments: Generate) -> list[ContentBlock]:
    return await _run_task(
        call, arguments.endpoint, {**arguments.options, "prompt": arguments.prompt}, arguments.wait_s
    )


async def edit(call: Call, arguments: Edit) -> list[ContentBlock]:
    endpoint = _find_endpoint(call, arguments.endpoint).endpoint
    if not call.caller.may(Permission.GENERATE):  # before anything is read for it
        raise NotDone(f"Not allowed: the role {call.caller.role.value} has no permission to generate")
    images = [await _image(call, image) for image in arguments.images]
    prompt = {} if arguments.prompt is None else {"prompt": arguments.prompt}
    body = {**arguments.options, **prompt, **_image_arguments(endpoint, images)}
    return await _run_task(call, arguments.endpoint, body, arguments.wait_s)


async def wait(call: Call, arguments: Wait) -> list[ContentBlock]:
    return await task_content(call.services, await _wait_for_task(call, arguments.task_id, arguments.wait_s))


async def fetch(call: Call, arguments: Fetch) -> list[ContentBlock]:
    return await task_content(call.services, await _wait_for_task(call, arguments.task_id, 0))


async def cancel(call: Call, arguments: Cancel) -> list[ContentBlock]:
    task = await call.itself.cancel(arguments.task_id)
    return [text_content({"id": task["id"], "status": task["status"]})]


async def _run_task(call: Call, endpoint: str, body: Mapping[str, Any], wait_s: float) -> list[ContentBlock]:
    submission = await call.itself.submit(_find_endpoint(call, endpoint).name, body)
    task = await _wait_for_task(call, submission["id"], wait_s)
    content = await task_content(call.services, task)
    warnings = submission.get("warnings")
    if warnings and task["status"] not in _TERMINAL:  # afterwards its details have them
        content.append(text_content({"warnings": warnings}))
    return content


async def _wait_for_task(call: Call, task_id: str, wait_s: float) -> TaskResult:
    """The task once it has ended, or after that time. Raises NotDone for one that came to nothing."""
    give_up = time.monotonic() + min(wait_s, call.longest_wait_s)
    while True:
        began = time.monotonic()
        task = await call.itself.poll(task_id, wait=_LOOK_S)
        await call.tell(task.get("progress") or 0.0, task["status"])
        if task["status"] in _TERMINAL or time.monotonic() >= give_up:
            break
        await asyncio.sleep(began + _LOOK_S - time.monotonic())  # where many wait, it was answered at once
    if task["status"] in _TERMINAL and task["status"] != Status.READY.value:
        details = task.get("details")
        raise NotDone(f"{task['status']}: {json.dumps(details)}" if details else task["status"])
    return task


async def _image(call: Call, image: str) -> str:
    """Returns what a field takes. A task's result becomes an upload: its link may lead to this machine."""
    task = await call.services.tasks.store.reads.get(image) if len(image) <= _ID_CHARS else None
    if task is None:
        return image
    if task.status is not Status.READY or task.result is None:
        raise NotDone(f"The task {image} has no image: it is {task.status.value}")
    if not media_type(task.result.key).startswith("image/"):
        raise NotDone(f"The task {image} made no image")
    key, upload_id, objects = task.result.key, str(uuid.uuid4()), call.services.objects
    extension = key.rpartition(".")[2]
    data, tasks, caller = await objects.get(key), call.services.tasks.store, call.caller
    try:
        await tasks.reservations.reserve_upload(
            upload_id, caller.project.id, caller.organization, len(data), call.services.catalog.least_price
        )
    except TaskRejected as refusal:
        raise NotDone(str(rejection_error(refusal, "uploads", call.services))) from None
    await objects.put(upload_key(upload_id, extension), data, media_type(key))
    await tasks.reservations.end_upload(upload_id, caller.project.id, len(data))
    return f"{UPLOAD}{upload_id}.{extension}"


def _image_arguments(endpoint: Endpoint, images: Sequence[str]) -> dict[str, Any]:
    """By the names that the endpoint has for images that are to be changed. Raises NotDone."""
    form = endpoint.request_type
    names = [name for name, role in form.image_fields.items() if role == "references"]
    if not names:
        raise NotDone("This endpoint takes its images by fields of their own: pass them in options")
    if len(names) == 1 and _is_list(form.model_fields[names[0]].annotation):
        return {names[0]: list(images)}
    if len(images) > len(names):
        raise NotDone(f"This endpoint takes at most {len(names)} images")
    return dict(zip(names, images, strict=False))


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) is list or any(_is_list(each) for each in get_args(annotation))


def _find_endpoint(call: Call, endpoint: str) -> ServedEndpoint:
    served_endpoint = call.served_endpoints.get(f"/v1/{endpoint.removeprefix('/').removeprefix('v1/')}")
    if served_endpoint is None:
        raise NotDone(f"There is no endpoint {endpoint[:100]}: list_models has them")
    return served_endpoint


def _summary(served_endpoint: ServedEndpoint) -> dict[str, Any]:
    fields = served_endpoint.endpoint.request_type.model_fields
    prices = {
        mode or "price": served_endpoint.endpoint.get_price(mode).model_dump()
        for mode in served_endpoint.endpoint.modes_or_default
    }
    return {
        "endpoint": served_endpoint.name,
        "summary": served_endpoint.endpoint.summary,
        "credits": prices,
        "needs": [name for name, field in fields.items() if field.is_required()],
        "takes": [name for name, field in fields.items() if not field.is_required()],
    }


A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ServiceTool(Generic[A]):
    name: str
    arguments: type[A]
    """Its docstring tells models what the tool is for."""
    run: Callable[[Call, A], Awaitable[list[ContentBlock]]]
    reads_only: bool = False


TOOLS: Mapping[str, ServiceTool[Any]] = {
    tool.name: tool
    for tool in (
        ServiceTool("list_models", ListModels, list_models, reads_only=True),
        ServiceTool("generate", Generate, generate),
        ServiceTool("edit", Edit, edit),
        ServiceTool("wait", Wait, wait, reads_only=True),
        ServiceTool("fetch", Fetch, fetch, reads_only=True),
        ServiceTool("cancel", Cancel, cancel),
    )
}


_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_REFUSED: Final = re.compile(r"q=0(\.0*)?")
"""The parameter of a media type that a client does not accept."""


def answer_type(accept: str) -> str | None:
    """Returns the media type to answer in, None where the client accepts neither.

    Programs that read events name them. All others get one JSON document: those that accept anything, or don't say.
    """
    media_types = set[str]()
    for each in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        if media_type and not any(_REFUSED.fullmatch(parameter) for parameter in parameters):
            media_types.add(media_type)
    if media_types & {_EVENTS, "text/*"}:
        return _EVENTS
    return _JSON if not accept.strip() or media_types & {_JSON, "application/*", "*/*"} else None


_UNREACHABLE: Final = (*connection.UNREACHABLE, *objects.UNREACHABLE)
_FORWARDED_HEADERS: Final = ("authorization", "x-key", "x-project", "traceparent")
_ONCE: Final = Retries(tries=1, too_many_tries=1)
_INSTRUCTIONS: Final = (
    "Makes and changes images and videos. Each generation is a task that costs credits; generate and edit wait "
    "for it and show the image. What takes longer goes on by itself: wait and fetch tell of it by its id."
)


class McpServer:
    """ASGI app of `/mcp`. `running` must be entered before requests come."""

    def __init__(self, app: FastAPI, served_endpoints: Mapping[str, ServedEndpoint]) -> None:
        self._app = app
        self._served_endpoints = served_endpoints

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the server; enter it once each time the app starts."""
        self._managers = {
            _JSON: StreamableHTTPSessionManager(self._server(), stateless=True, json_response=True),
            _EVENTS: StreamableHTTPSessionManager(self._server(), stateless=True),
        }
        async with self._managers[_JSON].run(), self._managers[_EVENTS].run():
            yield

    def _server(self) -> Server[Any]:
        return Server("gen-serve", instructions=_INSTRUCTIONS, on_list_tools=_list_tools, on_call_tool=self._call_tool)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        services: Services = self._app.state.services
        try:
            if not has_key_or_token(request.headers):  # the cookie of a session is for this service's pages
                raise HTTPException(403, "Not authenticated")
            request.state.caller = await authenticate(services, request, Permission.READ_TASKS)
            media_type = answer_type(",".join(request.headers.getlist("accept")))
            if media_type is None:
                raise HTTPException(406, f"Accept should have {_JSON} or {_EVENTS}")
        except HTTPException as refusal:
            await _challenge(request, services, refusal)(scope, receive, send)
            return
        request.state.longest_wait_s = _LONGEST_S if media_type == _EVENTS else _LONGEST_SILENCE_S
        # The SDK answers in events only those who accept both.
        accept = _JSON if media_type == _JSON else f"{_JSON}, {_EVENTS}"
        headers = [each for each in scope["headers"] if each[0] != b"accept"]
        scope["headers"] = [*headers, (b"accept", accept.encode())]
        await self._managers[media_type].handle_request(scope, receive, send)

    async def _call_tool(
        self, context: ServerRequestContext[dict[str, object], Request], params: CallToolRequestParams
    ) -> CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            return _error_result(f"There is no tool {params.name[:100]}: there are {', '.join(TOOLS)}")

        async def tell(progress: float, what: str) -> None:
            await context.session.report_progress(progress, 1.0, what)

        assert context.request is not None, "over HTTP"
        try:
            arguments = tool.arguments.model_validate(params.arguments or {})
            async with self._client(context.request) as http:
                itself = AsyncClient(str(http.base_url), retries=_ONCE, http=http)
                state = context.request.state
                services, endpoints = self._app.state.services, self._served_endpoints
                call = Call(itself, services, endpoints, state.caller, tell, state.longest_wait_s)
                return CallToolResult(content=await tool.run(call, arguments))
        except (NotDone, GenServeError) as refusal:
            return _error_result(str(refusal))
        except _UNREACHABLE as problem:
            logger.warning("a store is out of reach of tools: %s", type(problem).__name__)
            return _error_result("The service can't work now: try again shortly")
        except ValidationError as problem:
            return _error_result(
                "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problem.errors())
            )
        except Exception:
            logger.exception("unhandled error in the tool %s", params.name)
            return _error_result("Internal Server Error")

    def _client(self, request: Request) -> httpx2.AsyncClient:
        """To the app in this process, with the credentials that came with the call."""
        services: Services = self._app.state.services
        headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
        transport = httpx2.ASGITransport(self._app, raise_app_exceptions=False)
        base = public_base(request, services.settings.service)
        return httpx2.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=None)


async def _list_tools(
    context: ServerRequestContext[dict[str, object], Request], params: PaginatedRequestParams | None
) -> ListToolsResult:
    return ListToolsResult(
        tools=[
            Tool(
                name=tool.name,
                description=tool.arguments.__doc__,
                input_schema=tool.arguments.model_json_schema(),
                annotations=ToolAnnotations(read_only_hint=tool.reads_only, destructive_hint=tool.name == "cancel"),
            )
            for tool in TOOLS.values()
        ]
    )


def _error_result(why: str) -> CallToolResult:
    return CallToolResult(content=[text_content(why)], is_error=True)


def _challenge(request: Request, services: Services, refusal: HTTPException) -> JSONResponse:
    """Tells programs where to sign in: whoever shows nothing valid is answered 401 here, not 403."""
    headers = dict(refusal.headers or {})
    if refusal.status_code in (401, 403) and services.settings.accounts.oauth_clients:
        metadata = public_base(request, services.settings.service) + RESOURCE_METADATA + MCP
        headers["WWW-Authenticate"] = f"Bearer resource_metadata={quote_string(metadata)}"
    status = 401 if refusal.status_code == 403 else refusal.status_code
    return http_error_response(request, refusal, status, headers)
