"""MCP server at `/mcp`: tools for language models, authenticated by a key or an OAuth token.

The server is stateless, so any replica answers any request. Tools call the service's own HTTP interface in this process
and so obey its rules.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
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
from serve_app.accounts.roles import Permission
from serve_app.api.auth import MCP, RESOURCE_METADATA, authenticate, has_key_or_token, quote_string
from serve_app.api.errors import http_error_response
from serve_app.api.hosts import public_base
from serve_app.api.services import Services
from serve_app.config.catalog import Endpoint
from serve_app.schemas.image_klein import MAX_REFERENCES
from serve_app.storage import connection
from serve_app.submission.prepare import ServedEndpoint
from serve_app.tasks.task import TERMINAL, Status

logger = logging.getLogger(__name__)

_MAX_IMAGE_BYTES: Final = 2**20
"""Largest image that an answer contains; a larger one is replaced by its thumbnail."""
_TASK_FIELDS: Final = ("id", "status", "progress", "cost", "details")
_RESULT_FIELDS: Final = ("seed", "duration", "prompt")


def text_content(value: object) -> TextContent:
    return TextContent(type="text", text=value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


async def task_content(services: Services, task: TaskResult) -> list[ContentBlock]:
    """Returns the task's fields. A ready task also has its image, if it is small, and links to its files."""
    body = cast(Mapping[str, Any], task)
    fields = {name: body[name] for name in _TASK_FIELDS if body.get(name) is not None}
    result = body.get("result")
    if not result:
        return [text_content(fields)]
    fields |= {name: result[name] for name in _RESULT_FIELDS if name in result}
    links = map(_link, result.get("samples") or [result["sample"]])
    return [text_content(fields), *await _result_image(services, body["id"]), *links]


async def _result_image(services: Services, task_id: str) -> list[ContentBlock]:
    task = await services.tasks.store.reads.get(task_id)
    result = task.result if task is not None and task.status is Status.READY else None
    if not result:
        return []
    for key in (result.key, result.thumbnail):
        if key and media_type(key).startswith("image/"):
            with suppress(FileNotFoundError):  # deleted since
                data = await services.objects.get(key)
                if len(data) <= _MAX_IMAGE_BYTES:
                    return [ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=media_type(key))]
    return []


def _link(url: str) -> ResourceLink:
    name = url.partition("?")[0].rpartition("/")[2]
    return ResourceLink(type="resource_link", uri=url, name=name, mime_type=media_type(name))


ReportProgress: TypeAlias = Callable[[float, str], Awaitable[None]]
"""Called with the progress from 0 to 1 and the task's status."""
DEFAULT_ENDPOINT: Final = "gen-3-image-klein"
_MAX_WAIT_S: Final = 300.0
_MAX_SILENCE_S: Final = 50.0
"""Time limit of an answer without events; load balancers wait longer for a response to begin."""
_POLL_S: Final = 1.0
"""Seconds that one poll waits for a task to end, and so the interval of progress reports."""
_ID_CHARS: Final = 64
_TERMINAL: Final = {status.value for status in TERMINAL | {Status.NOT_FOUND}}


class ToolFailed(Exception):
    """A tool could not do its work. The message is shown to the caller."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    client: AsyncClient
    """Client of this service, in this process, with the caller's credentials."""
    http: httpx2.AsyncClient
    """The HTTP client below `client`."""
    services: Services
    served_endpoints: Mapping[str, ServedEndpoint]
    report_progress: ReportProgress
    max_wait_s: float


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


EndpointName = Annotated[str, Field(description="An endpoint of list_models")]
Seconds = Annotated[float, Field(ge=0, le=_MAX_WAIT_S, description="Seconds to wait; call the tool wait to continue")]
Options = Annotated[dict[str, Any], Field(description="Further fields of the endpoint; list_models shows them")]
TaskId = Annotated[str, Field(max_length=_ID_CHARS, description="The task's id")]


class ListModels(_Arguments):
    """List the endpoints with their prices in credits and their fields, and the credits that are left."""

    endpoint: str | None = Field(default=None, description="List this endpoint alone, with the schema of its fields")


class Generate(_Arguments):
    """Make an image or a video from a text. Returns the image, or the task's id if it takes longer than `wait_s`."""

    prompt: str
    endpoint: EndpointName = DEFAULT_ENDPOINT
    options: Options = {}
    wait_s: Seconds = 60


class Edit(_Arguments):
    """Change an image as a text describes, or make one from several images."""

    prompt: str | None = Field(default=None, description="The change to make; tools such as deblur take no prompt")
    images: list[str] = Field(
        min_length=1,
        max_length=MAX_REFERENCES,
        description="Each an https URL, an image in base64, or the id of a task that made one",
    )
    endpoint: EndpointName = DEFAULT_ENDPOINT
    options: Options = {}
    wait_s: Seconds = 60


class Wait(_Arguments):
    """Wait for a task to end. Returns what generate returns."""

    task_id: TaskId
    wait_s: Seconds = 60


class Fetch(_Arguments):
    """Show a task at once. A ready task has its image and a link that is valid for some minutes."""

    task_id: TaskId


class Cancel(_Arguments):
    """Cancel a task that has not ended. Its credits are returned."""

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
    return [text_content({"models": models, "credits": await call.client.credits()})]


async def generate(call: Call, arguments: Generate) -> list[ContentBlock]:
    return await _run_task(
        call, arguments.endpoint, {**arguments.options, "prompt": arguments.prompt}, arguments.wait_s
    )


async def edit(call: Call, arguments: Edit) -> list[ContentBlock]:
    endpoint = _find_endpoint(call, arguments.endpoint).endpoint
    images = [await _image(call, image) for image in arguments.images]
    prompt = {} if arguments.prompt is None else {"prompt": arguments.prompt}
    body = {**arguments.options, **prompt, **_image_arguments(endpoint, images)}
    return await _run_task(call, arguments.endpoint, body, arguments.wait_s)


async def wait(call: Call, arguments: Wait) -> list[ContentBlock]:
    return await task_content(call.services, await _wait_for_task(call, arguments.task_id, arguments.wait_s))


async def fetch(call: Call, arguments: Fetch) -> list[ContentBlock]:
    return await task_content(call.services, await _wait_for_task(call, arguments.task_id, 0))


async def cancel(call: Call, arguments: Cancel) -> list[ContentBlock]:
    task = await call.client.cancel(arguments.task_id)
    return [text_content({"id": task["id"], "status": task["status"]})]


async def _run_task(call: Call, endpoint: str, body: Mapping[str, Any], wait_s: float) -> list[ContentBlock]:
    submission = await call.client.submit(_find_endpoint(call, endpoint).name, body)
    task = await _wait_for_task(call, submission["id"], wait_s)
    content = await task_content(call.services, task)
    warnings = submission.get("warnings")
    if warnings and task["status"] not in _TERMINAL:  # the details of an ended task have them
        content.append(text_content({"warnings": warnings}))
    return content


async def _wait_for_task(call: Call, task_id: str, wait_s: float) -> TaskResult:
    """Returns the task when it has ended or `wait_s` has passed. Raises ToolFailed if it ended without a result."""
    deadline = time.monotonic() + min(wait_s, call.max_wait_s)
    while True:
        started_at = time.monotonic()
        task = await call.client.poll(task_id, wait=_POLL_S)
        await call.report_progress(task.get("progress") or 0.0, task["status"])
        if task["status"] in _TERMINAL or time.monotonic() >= deadline:
            break
        await asyncio.sleep(started_at + _POLL_S - time.monotonic())  # polls return at once where too many wait
    if task["status"] in _TERMINAL and task["status"] != Status.READY.value:
        details = task.get("details")
        raise ToolFailed(f"{task['status']}: {json.dumps(details)}" if details else task["status"])
    return task


async def _image(call: Call, image: str) -> str:
    """Returns the value of an image field. Uploads a task's result, as its link may lead to a loopback address."""
    task = await call.services.tasks.store.reads.get(image) if len(image) <= _ID_CHARS else None
    if task is None:
        return image
    if task.status is not Status.READY or task.result is None:
        raise ToolFailed(f"The task {image} has no image: it is {task.status.value}")
    if not media_type(task.result.key).startswith("image/"):
        raise ToolFailed(f"The task {image} made no image")
    key = task.result.key
    created = await call.http.post("/v1/uploads", json={"content_type": media_type(key)})
    _raise_tool_failed(created)
    upload = created.json()
    data = await call.services.objects.get(key)
    _raise_tool_failed(await call.http.put(upload["url"], content=data, headers=upload["headers"]))
    return upload["upload"]


def _raise_tool_failed(response: httpx2.Response) -> None:
    """Raises ToolFailed with the detail of an error response."""
    if response.is_error:
        detail = response.json()["detail"]
        raise ToolFailed(detail if isinstance(detail, str) else "; ".join(each["msg"] for each in detail))


def _image_arguments(endpoint: Endpoint, images: Sequence[str]) -> dict[str, Any]:
    """Returns `images` by the names of the endpoint's reference fields. Raises ToolFailed if they don't fit."""
    form = endpoint.request_type
    names = [name for name, role in form.image_fields.items() if role == "references"]
    if not names:
        raise ToolFailed("This endpoint has special image fields: pass them in options")
    if len(names) == 1 and _is_list(form.model_fields[names[0]].annotation):
        return {names[0]: list(images)}
    if len(images) > len(names):
        raise ToolFailed(f"This endpoint takes at most {len(names)} images")
    return dict(zip(names, images, strict=False))


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) is list or any(_is_list(each) for each in get_args(annotation))


def _find_endpoint(call: Call, endpoint: str) -> ServedEndpoint:
    served_endpoint = call.served_endpoints.get(f"/v1/{endpoint.removeprefix('/').removeprefix('v1/')}")
    if served_endpoint is None:
        raise ToolFailed(f"There is no endpoint {endpoint[:100]}: list_models shows all")
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
    """The docstring of this class is the tool's description."""
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
    """Returns the media type of the response; None if the client accepts neither.

    Clients that read events name them. All others get one JSON document.
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
    "for it and show the image. A task that takes longer continues: call wait or fetch with its id."
)


class McpServer:
    """ASGI app of `/mcp`. Enter `running` before the first request."""

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
            if not has_key_or_token(request.headers):  # session cookies are for this service's pages
                raise HTTPException(403, "Not authenticated")
            await authenticate(services, request, Permission.READ_TASKS)
            media_type = answer_type(",".join(request.headers.getlist("accept")))
            if media_type is None:
                raise HTTPException(406, f"Accept should have {_JSON} or {_EVENTS}")
        except HTTPException as refusal:
            await _challenge(request, services, refusal)(scope, receive, send)
            return
        request.state.max_wait_s = _MAX_WAIT_S if media_type == _EVENTS else _MAX_SILENCE_S
        # The SDK sends events only to clients that accept both.
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

        async def report_progress(progress: float, status: str) -> None:
            await context.session.report_progress(progress, 1.0, status)

        assert context.request is not None, "over HTTP"
        try:
            arguments = tool.arguments.model_validate(params.arguments or {})
            async with self._client(context.request) as http:
                client = AsyncClient(str(http.base_url), retries=_ONCE, http=http)
                services, max_wait_s = self._app.state.services, context.request.state.max_wait_s
                call = Call(client, http, services, self._served_endpoints, report_progress, max_wait_s)
                return CallToolResult(content=await tool.run(call, arguments))
        except (ToolFailed, GenServeError) as refusal:
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
        """Returns a client of the app in this process, with the caller's credentials."""
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
    """Returns 401, where other paths return 403, with the address at which programs sign in."""
    headers = dict(refusal.headers or {})
    if refusal.status_code in (401, 403) and services.settings.accounts.oauth_clients:
        metadata = public_base(request, services.settings.service) + RESOURCE_METADATA + MCP
        headers["WWW-Authenticate"] = f"Bearer resource_metadata={quote_string(metadata)}"
    status = 401 if refusal.status_code == 403 else refusal.status_code
    return http_error_response(request, refusal, status, headers)
