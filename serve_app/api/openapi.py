"""The OpenAPI documents for clients and for administration, and their pages.

Their version is 3.1, which client generators support. Operations are named after their functions.
"""

from __future__ import annotations

import re
from string import Template
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.routing import iter_route_contexts
from fastapi.staticfiles import StaticFiles
from fastapi_offline.core import _STATIC_PATH as SWAGGER_FILES

from serve_app.api.pages import HEADERS, policy, read_page

PUBLIC: Final = "/openapi.json"
ADMIN: Final = "/openapi-admin.json"
ASSETS: Final = "/docs/static"

DESCRIPTION: Final = (
    "Asynchronous media generation: `POST` to a `/v1/gen-…` path returns a task id and a polling URL at once; fetch "
    "the result with `GET /v1/get_result`. Sessions and administration: [/docs/admin](/docs/admin)."
)
_ADMIN_DESCRIPTION: Final = "Sessions of people in browsers; organizations, projects, keys, members and the fleet."

_TAGS: Final = {
    "generate": "Submit tasks. Every operation returns a task id and a polling URL at once.",
    "results": "Poll a task, and fetch its result.",
    "tasks": "List, cancel and follow tasks; webhook deliveries and links to results.",
    "uploads": "Upload large images and videos before the requests that use them.",
    "tuned models": "Upload and manage LoRA files.",
    "account": "Credits, prices and usage.",
    "openai": "The same models through OpenAI's API.",
    "licences": "Report generations of licensed models outside this service.",
    "health": "Probes.",
}
_ADMIN_TAGS: Final = {
    "session": "Sign people in and out, invite them, and let programs act for them.",
    "admin": "Organizations, projects, keys, members, credits, licences, the audit log and the fleet.",
}
_STEPS: Final = (
    "## How to use it",
    "- Send a key with every request: header `x-key`.",
    '- Submit: `POST` JSON such as `{"prompt": "…"}` to an endpoint below; the response has `id` and `polling_url`.',
    "- Poll: `GET polling_url`, with `&wait=60` to wait, until `status` is `Ready`, `Error` or ends in `Moderated`.",
    "- The result is at the signed link `result.sample`. Errors have `detail`, a permanent `code` and often a `hint`.",
    f"- Every field, with ranges and defaults: [OpenAPI document]({PUBLIC}). Tools over MCP: `/mcp`.",
)
_METHODS: Final = ("get", "put", "post", "delete", "patch")


def camel_case(name: str) -> str:
    """`gen-tools/erase-v1` becomes `genToolsEraseV1`."""
    first, *others = re.split(r"[^A-Za-z0-9]+", name)
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def install(app: FastAPI) -> None:
    """Adds both documents and their pages `/docs` and `/docs/admin`. Call it after all routes are added."""

    def public_document() -> dict[str, Any]:
        app.openapi_schema = app.openapi_schema or _document(app, app.title, _TAGS, DESCRIPTION)
        return app.openapi_schema

    app.openapi = public_document
    app.mount(ASSETS, StaticFiles(directory=SWAGGER_FILES), name="docs-static")

    @app.get(ADMIN, include_in_schema=False)
    async def admin_openapi() -> JSONResponse:
        return JSONResponse(admin_document(app))

    @app.get("/llms.txt", include_in_schema=False)
    async def llms() -> PlainTextResponse:
        return PlainTextResponse(_list_endpoints(app))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return _page(app.title, PUBLIC)

    @app.get("/docs/admin", include_in_schema=False)
    async def admin_docs() -> HTMLResponse:
        return _page(f"{app.title}: administration", ADMIN)


def admin_document(app: FastAPI) -> dict[str, Any]:
    return _document(app, f"{app.title}: administration", _ADMIN_TAGS, _ADMIN_DESCRIPTION)


def _document(app: FastAPI, title: str, tags: dict[str, str], description: str) -> dict[str, Any]:
    document = get_openapi(
        title=title,
        version=app.version,
        description=description,
        routes=[route for route in iter_route_contexts(app.routes) if tags.keys() & set(getattr(route, "tags", ()))],
        tags=[{"name": name, "description": text} for name, text in tags.items()],
        servers=[{"url": "/"}],
    )
    operations = (path[method] for path in document["paths"].values() for method in _METHODS if method in path)
    for operation in operations:
        operation.setdefault("security", [])  # linters require it explicitly for operations without a key
        for response in operation["responses"].values():
            # The framework describes events by OpenAPI 3.2, which few generators support.
            if stream := response.get("content", {}).get("text/event-stream"):
                stream.pop("itemSchema", None)
                stream["schema"] = {"type": "string"}
    return document


_PAGE: Final = Template(read_page("reference.html"))
_PAGE_HEADERS: Final = HEADERS | {
    "Content-Security-Policy": policy(style_src="'self' 'unsafe-inline'")  # for Swagger's inline styles
}


def _page(title: str, document: str) -> HTMLResponse:
    """Renders a document with local scripts, so that it works offline."""
    return HTMLResponse(_PAGE.substitute(title=title, document=document, assets=ASSETS), headers=_PAGE_HEADERS)


def _list_endpoints(app: FastAPI) -> str:
    """Describes the service for language models: https://llmstxt.org."""
    operations = ((path, methods.get("post", {})) for path, methods in app.openapi()["paths"].items())
    endpoints = [
        f"- [POST {path}]({PUBLIC}): {operation['summary']}"
        for path, operation in operations
        if "generate" in operation.get("tags", ()) and not operation.get("deprecated")
    ]
    return "\n".join((f"# {app.title}", f"> {DESCRIPTION}", *_STEPS, "## Endpoints", *endpoints, ""))
