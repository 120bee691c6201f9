"""The pages of documentation, and the OpenAPI description."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urljoin

import pytest
from support.http_client import Client

from serve_app.api.pages.guide import CHAPTERS
from serve_app.cli.ops import openapi


def test_reference_loads_nothing_from_other_servers(client: Client) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "://" not in response.text
    urls = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)""", response.text)
    assert "/openapi.json" in urls
    assert {Path(path).suffix for path in urls} >= {".js", ".css", ".svg", ".json"}
    for path in urls:
        asset = client.get(path)
        assert asset.status_code == 200, path
        assert asset.content, path


def test_llms_text_lists_the_endpoints(client: Client) -> None:
    text = client.get("/llms.txt").text
    assert text.startswith("# Media generation\n> Asynchronous media generation")
    assert "- [POST /v1/gen-3-image-klein](/openapi.json): Text to image, or edit with up to ten references" in text
    assert "gen-pro-1.0-depth" not in text


def test_guide_has_every_document_and_no_dead_link(client: Client, repository: Path) -> None:
    assert client.get("/guide", follow_redirects=False).headers["location"] == "/guide/quickstart"
    names = {file.stem for file in (repository / "docs").glob("*.md")}
    assert names == {name for names in CHAPTERS.values() for name in names}
    pages = {f"/guide/{name}": client.get(f"/guide/{name}").text for name in names}
    for path, text in pages.items():
        for href in re.findall(r"""(?:href|src)="([^"#][^":]*)\"""", text):
            address, _, fragment = urljoin(path, href).partition("#")
            if address in pages:
                assert not fragment or f'id="{fragment}"' in pages[address], href
            else:
                assert client.get(address, follow_redirects=True).status_code == 200, href
    assert client.get("/guide/nothing", headers={"accept": "text/html"}).status_code == 404


def test_pages_show_the_release(client: Client) -> None:
    assert f"gen-serve {version('gen-serve')}" in client.get("/").text
    assert client.get("/openapi.json").json()["info"]["version"] == version("gen-serve")


def test_browser_gets_a_page_for_unknown_paths(client: Client) -> None:
    page = client.get("/galery", headers={"accept": "text/html,*/*"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert 'href="/gallery"' in page.text
    for path, accept in (("/galery", "*/*"), ("/v1/gen-none", "text/html")):
        answer = client.get(path, headers={"accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_files_of_pages_are_cached_by_release(client: Client) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    paths = re.findall(r'(?:src|href)="(/pages/[^"]+)"', page.text)
    assert len(paths) > 20
    for path in paths:
        assert client.get(path).headers["cache-control"] == "public, max-age=31536000, immutable", path
    # Files of another release are served, but not cached.
    other = client.get(re.sub("/pages/[0-9a-f]{12}/", "/pages/0123456789ab/", paths[0]))
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")


def test_description_in_the_repository_is_current(
    client: Client, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    openapi()
    text = (repository / "openapi.json").read_text()
    assert text == capsys.readouterr().out, "run `make openapi`"
    assert client.get("/openapi.json").json() == json.loads(text)
