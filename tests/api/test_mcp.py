"""`/mcp` with the client of the MCP SDK: tools, content types, and OAuth sign-in."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent
from pydantic import AnyUrl
from support.http_client import Client
from support.http_service import Service
from support.images import image_file

from serve_app.tasks.task import Status

BACK = "http://127.0.0.1:7778/back"
IMAGE = image_file(form="JPEG")


@asynccontextmanager
async def connect(service: Service, **options: Any) -> AsyncIterator[McpClient]:
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=60, **options) as http,
        McpClient(streamable_http_client(f"{service.base_url}/mcp", http_client=http)) as mcp,
    ):
        yield mcp


def connect_with_key(service: Service, client: Client) -> AbstractAsyncContextManager[McpClient]:
    return connect(service, headers={"authorization": f"Bearer {client.secret}"})


def read_content(result: CallToolResult) -> Any:
    (first, *_) = [each for each in result.content if isinstance(each, TextContent)]
    return first.text if result.is_error else json.loads(first.text)


async def call(mcp: McpClient, tool: str, **arguments: Any) -> Any:
    return read_content(await mcp.call_tool(tool, arguments))


async def finish_task(service: Service, client: Client) -> str:
    """Waits for a task of the project and finishes it. Returns its id."""

    def finish() -> str:
        while not (waiting := client.get("/v1/tasks", params={"active": True}).json()["tasks"]):
            pass
        task_id = waiting[0]["id"]
        service.worker.advance(task_id, Status.GENERATING, progress=0.5)
        service.worker.deliver(task_id, IMAGE)
        return task_id

    return await asyncio.to_thread(finish)


async def test_models_are_listed_with_prices_and_fields(service: Service, client: Client) -> None:
    async with connect_with_key(service, client) as mcp:
        tools = {tool.name for tool in (await mcp.list_tools()).tools}
        assert tools == {"list_models", "generate", "edit", "wait", "fetch", "cancel"}
        listing = await call(mcp, "list_models")
        (klein,) = [model for model in listing["models"] if model["endpoint"] == "gen-3-image-klein"]
        assert klein["needs"] == ["prompt"]
        assert klein["credits"]["price"]["first"] > 0
        assert listing["credits"] > 0
        one = await call(mcp, "list_models", endpoint="gen-3-image-klein")
        assert "prompt" in one["schema"]["properties"]


async def test_generate_reports_progress_and_returns_the_image(service: Service, client: Client) -> None:
    progress_events: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        progress_events.append((progress, message))

    async with connect_with_key(service, client) as mcp:
        finished = asyncio.create_task(finish_task(service, client))
        result = await mcp.call_tool("generate", {"prompt": "a red star"}, progress_callback=on_progress)
        assert read_content(result)["id"] == await finished
    (image,) = [each for each in result.content if isinstance(each, ImageContent)]
    assert base64.b64decode(image.data) == IMAGE
    (link,) = [each for each in result.content if isinstance(each, ResourceLink)]
    assert httpx2.get(str(link.uri), trust_env=False, timeout=60).content == IMAGE
    assert progress_events[-1] == (1.0, "Ready")


async def test_edit_takes_the_image_of_a_task(service: Service, client: Client) -> None:
    async with connect_with_key(service, client) as mcp:
        first = (await call(mcp, "generate", prompt="a red star", wait_s=0))["id"]
        assert await finish_task(service, client) == first
        second = (await call(mcp, "edit", prompt="make it blue", images=[first], wait_s=0))["id"]
        job = await asyncio.to_thread(service.worker.job, second)
        assert len(job["references"]) == 1
        unfinished = await call(mcp, "edit", prompt="make it blue", images=[second], wait_s=0)
        assert unfinished.endswith("has no image: it is Pending")


async def test_tasks_are_waited_for_fetched_and_cancelled(service: Service, client: Client) -> None:
    async with connect_with_key(service, client) as mcp:
        task = await call(mcp, "generate", prompt="a red star", wait_s=0)
        assert task["status"] == "Pending"
        finished = asyncio.create_task(finish_task(service, client))
        assert (await call(mcp, "wait", task_id=task["id"]))["status"] == "Ready"
        assert await finished == task["id"]
        fetched = await mcp.call_tool("fetch", {"task_id": task["id"]})
        assert [each.type for each in fetched.content] == ["text", "image", "resource_link"]
        task = await call(mcp, "generate", prompt="a red star", wait_s=0)
        assert not (await mcp.call_tool("cancel", {"task_id": task["id"]})).is_error
        assert (await call(mcp, "wait", task_id=task["id"])).startswith("Error: ")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("generate", {"prompt": "a star", "endpoint": "gen-9"}, "There is no endpoint gen-9: list_models shows all"),
    ("generate", {"prompt": "a star", "options": {"seed": "x"}}, "HTTP 422: body.seed: "),
    ("generate", {}, "prompt: Field required"),
    ("edit", {"prompt": "x", "images": ["y"], "endpoint": "gen-3-video"}, "This endpoint has special image fields"),
    ("fetch", {"task_id": "none"}, "Task not found"),
    ("cancel", {"task_id": "none"}, "there is no task none"),
    ("paint", {}, "There is no tool paint"),
    ("edit", {"images": ["x"] * 11}, "images: List should have at most 10 items"),
]


async def test_tool_errors_name_the_problem(service: Service, client: Client) -> None:
    async with connect_with_key(service, client) as mcp:
        for tool, arguments, wrong in WRONG:
            result = await mcp.call_tool(tool, arguments)
            assert result.is_error
            assert read_content(result).startswith(wrong)


JSON, EVENTS = "application/json", "text/event-stream"


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        (f"{JSON}, {EVENTS}", EVENTS),
        (EVENTS, EVENTS),
        ("text/*, application/*;q=0.5", EVENTS),
        (JSON, JSON),
        ("application/*", JSON),
        (f"{JSON}, {EVENTS};q=0", JSON),
        ("*/*", JSON),
        ("", JSON),
        (None, JSON),
        ("text/html", None),
        (f"{JSON};q=0.0", None),
    ],
)
def test_response_has_an_accepted_content_type(
    service: Service, client: Client, accept: str | None, answer: str | None
) -> None:
    headers = {"authorization": f"Bearer {client.secret}", "accept": accept}
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    calls = {"initialize": about, "tools/list": {}, "tools/call": {"name": "list_models", "arguments": {}}}
    with httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60) as http:
        del http.headers["accept"]
        for method, params in calls.items():
            rpc = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            response = http.post(
                "/mcp", json=rpc, headers={name: value for name, value in headers.items() if value is not None}
            )
            if answer is None:
                assert response.status_code == 406
                assert f"{JSON} or {EVENTS}" in response.json()["detail"]
                continue
            assert response.status_code == 200, response.text
            assert response.headers["content-type"].startswith(answer)
            text = response.text.partition("data: ")[2] if answer == EVENTS else response.text
            assert "result" in json.loads(text)


async def test_example_in_the_docs_makes_an_image(
    service: Service, client: Client, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (repository / "docs/accounts.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(example, namespace)
    finished = asyncio.create_task(finish_task(service, client))
    await namespace["main"](service.base_url, client.secret)
    await finished
    assert capsys.readouterr().out == "['text', 'image', 'resource_link']\n"


def test_unauthenticated_response_names_the_metadata(service: Service) -> None:
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60) as http:
        for headers in ({}, {"x-key": "gen_wrong"}, {"authorization": "Bearer gent_wrong"}):
            answer = http.post("/mcp", json=rpc, headers=headers)
            assert answer.status_code == 401
            metadata = f"{service.base_url}/.well-known/oauth-protected-resource/mcp"
            assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{metadata}"'
        assert http.get("/mcp").status_code == 405


class MemoryTokenStorage(TokenStorage):
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def test_client_signs_in_with_oauth_and_makes_an_image(service: Service, client: Client) -> None:
    headers = {"sec-fetch-site": "same-origin"}
    redirects: list[AuthorizationCodeResult] = []

    async def person(url: str) -> None:
        """Follows the link in a browser with a session, and consents."""
        async with httpx2.AsyncClient(
            base_url=service.base_url, headers=headers, trust_env=False, timeout=60
        ) as browser:
            (await browser.post("/v1/session", json={"key": client.secret})).raise_for_status()
            secret = (await browser.get(url)).headers["location"].partition("#")[2]
            consent = {"allow": True, "project": client.project}
            answer = await browser.post("/v1/consent", headers={"x-secret": secret}, json=consent)
        query = parse_qs(urlsplit(answer.json()["redirect"]).query)
        redirects.append(AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0]))

    async def back() -> AuthorizationCodeResult:
        return redirects[-1]

    storage = MemoryTokenStorage()
    signing_in = OAuthClientProvider(
        server_url=f"{service.base_url}/mcp",
        client_metadata=OAuthClientMetadata(redirect_uris=[AnyUrl(BACK)], client_name="Sketchpad"),
        storage=storage,
        redirect_handler=person,
        callback_handler=back,
    )
    async with connect(service, auth=signing_in) as mcp:
        finished = asyncio.create_task(finish_task(service, client))
        result = await mcp.call_tool("generate", {"prompt": "a red star"})
        assert read_content(result)["id"] == await finished
    assert storage.tokens is not None
    assert storage.tokens.scope == "developer"
    assert len(redirects) == 1
