"""Requests of ComfyUI's nodes, from `tests/clients/comfyui.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.http_client import Client, problems, refusal
from support.http_service import Service, running
from support.images import to_base64
from support.promises import promise
from support.website import Website
from tool_endpoints import PHOTO, PHOTO_FILE, SPOT
from video_requests import video_file

from serve_app.config.settings import ServiceSettings

SHAPES: dict[str, dict[str, Any]] = {
    f"{nodes}: {node}": shape
    for nodes, shapes in yaml.safe_load((Path(__file__).parent.parent / "clients/comfyui.yaml").read_text()).items()
    for node, shape in shapes.items()
}


@pytest.fixture(scope="module")
def alias_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service with the aliases that these nodes use."""
    settings = ServiceSettings(path_aliases=["flux"])
    with running(tmp_path_factory.mktemp("aliased"), redis_url, repository, service=settings) as service:
        yield service


@pytest.fixture
def node(alias_service: Service) -> Iterator[Client]:
    with alias_service.client() as client:
        yield client


def fill(value: Any, files: Mapping[str, str]) -> Any:
    """Returns the body with files in place of their placeholders."""
    match value:
        case str():
            return files.get(value, value)
        case list():
            return [fill(each, files) for each in value]
        case dict():
            return {name: fill(each, files) for name, each in value.items()}
        case _:
            return value


def post_shape(node: Client, web: Website, shape: Mapping[str, Any]) -> Any:
    url = web.set_page("/comfyui.png", PHOTO_FILE, content_type="image/png")
    files = {"<image>": PHOTO, "<mask>": SPOT, "<video>": to_base64(video_file()), "<url>": url}
    return node.order(shape["path"], **fill(shape["body"], files))


def names(*, served: bool = True, refused: bool = False) -> list[str]:
    return [
        name for name, shape in SHAPES.items() if (shape.get("served", True), "refused" in shape) == (served, refused)
    ]


@promise(
    "Decided: submission",
    "ignored on the gen-1/gen-2/kontext-style routes (real clients send `aspect_ratio` beside `width`/`height`, "
    "`guidance`, `user`, …)",
)
@pytest.mark.parametrize("name", names())
def test_request_of_a_node_is_accepted(node: Client, web: Website, name: str) -> None:
    response = post_shape(node, web, SHAPES[name])
    assert response.status_code == 200, response.text
    # The nodes poll without a key, and read these.
    task = node.get(response.json()["polling_url"], headers={"x-key": ""}).json()
    assert (task["status"], task["result"]) == ("Pending", None)


@pytest.mark.parametrize("name", names(served=False))
def test_node_of_another_model_gets_404(node: Client, web: Website, name: str) -> None:
    assert refusal(post_shape(node, web, SHAPES[name]), 404).startswith("Not Found")


@pytest.mark.parametrize("name", names(refused=True))
def test_unknown_field_of_a_node_is_named(node: Client, web: Website, name: str) -> None:
    assert problems(post_shape(node, web, SHAPES[name])) == [(["body", SHAPES[name]["refused"]], "extra_forbidden")]
