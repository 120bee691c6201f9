"""`/mcp`: the service for models that call tools (Model Context Protocol), by a key or a token that a person gave.

Any replica answers any request: nothing is kept between two of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import httpx2
from fastapi import FastAPI, HTTPException
from gen_serve_client import AsyncClient, GenServeError, Retries
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from deployments.contract import objects
from serve_app.accounts.roles import Permission
from serve_app.http.auth import MCP, RESOURCE_METADATA, authenticated, has_key_or_token, quoted_string
from serve_app.http.errors import http_error_response
from serve_app.http.mcp.content import text
from serve_app.http.mcp.tools import TOOLS, Call, NotDone
from serve_app.http.origin import public_base
from serve_app.http.services import Services
from serve_app.redis_store import connection
from serve_app.submission.dependencies import Offer

logger = logging.getLogger(__name__)

_OUT_OF_REACH: Final = (*connection.UNREACHABLE, *objects.UNREACHABLE)
_PASSED_ON: Final = ("authorization", "x-key", "x-project", "traceparent")
_ONCE: Final = Retries(tries=1, too_many_tries=1)
_INSTRUCTIONS: Final = (
    "Makes and changes pictures and videos. Each generation is a task that costs credits; generate and edit wait "
    "for it and show the picture. What takes longer goes on by itself: wait and fetch tell of it by its id."
)


class McpServer:
    """ASGI app of `/mcp`. `running` must be entered before requests come."""

    def __init__(self, app: FastAPI, offers: Mapping[str, Offer]) -> None:
        self._app = app
        self._offers = offers

    def running(self) -> AbstractAsyncContextManager[None]:
        """To be entered once each time the app starts."""
        server = Server("gen-serve", instructions=_INSTRUCTIONS, on_list_tools=_listed, on_call_tool=self._called)
        self._manager = StreamableHTTPSessionManager(server, stateless=True)
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        services: Services = self._app.state.services
        try:
            if not has_key_or_token(request.headers):  # the cookie of a session is for this service's pages
                raise HTTPException(403, "Not authenticated")
            request.state.caller = await authenticated(services, request, Permission.READ_TASKS)
        except HTTPException as refusal:
            await _challenge(request, services, refusal)(scope, receive, send)
            return
        await self._manager.handle_request(scope, receive, send)

    async def _called(
        self, context: ServerRequestContext[dict[str, object], Request], params: CallToolRequestParams
    ) -> CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            return _failed(f"There is no tool {params.name[:100]}: there are {', '.join(TOOLS)}")

        async def tell(progress: float, what: str) -> None:
            await context.session.report_progress(progress, 1.0, what)

        assert context.request is not None, "over HTTP"
        try:
            arguments = tool.arguments.model_validate(params.arguments or {})
            async with self._as_client(context.request) as http:
                itself = AsyncClient(str(http.base_url), retries=_ONCE, http=http)
                call = Call(itself, self._app.state.services, self._offers, context.request.state.caller, tell)
                return CallToolResult(content=await tool.run(call, arguments))
        except (NotDone, GenServeError) as refusal:
            return _failed(str(refusal))
        except _OUT_OF_REACH as problem:
            logger.warning("a store is out of reach of tools: %s", type(problem).__name__)
            return _failed("The service can't work now: try again shortly")
        except ValidationError as problem:
            return _failed("; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problem.errors()))
        except Exception:
            logger.exception("unhandled error in the tool %s", params.name)
            return _failed("Internal Server Error")

    def _as_client(self, request: Request) -> httpx2.AsyncClient:
        """To the app in this process, with the credentials that came with the call."""
        services: Services = self._app.state.services
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        transport = httpx2.ASGITransport(self._app, raise_app_exceptions=False)
        base = public_base(request, services.settings.service)
        return httpx2.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=None)


async def _listed(
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


def _failed(why: str) -> CallToolResult:
    return CallToolResult(content=[text(why)], is_error=True)


def _challenge(request: Request, services: Services, refusal: HTTPException) -> JSONResponse:
    """Tells programs where to sign in: whoever shows nothing valid is answered 401 here, not 403."""
    headers = dict(refusal.headers or {})
    if refusal.status_code in (401, 403) and services.settings.accounts.programs:
        metadata = public_base(request, services.settings.service) + RESOURCE_METADATA + MCP
        headers["WWW-Authenticate"] = f"Bearer resource_metadata={quoted_string(metadata)}"
    status = 401 if refusal.status_code == 403 else refusal.status_code
    return http_error_response(request, refusal, status, headers)
