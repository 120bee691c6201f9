"""The description of the interface, for people and for machines."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urljoin

import pytest
from support.http_client import Client
from support.promises import promise

from serve_app.api.pages.guide import CHAPTERS
from serve_app.cli.ops import openapi


def test_the_page_needs_nothing_from_elsewhere(client: Client) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "://" not in response.text, "nothing is loaded from another server"
    urls = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)""", response.text)
    assert "/openapi.json" in urls
    assert {Path(path).suffix for path in urls} >= {".js", ".css", ".svg", ".json"}
    for path in urls:
        asset = client.get(path)
        assert asset.status_code == 200, path
        assert asset.content, path


def test_programs_that_read_text_are_told_how_to_use_it(client: Client) -> None:
    text = client.get("/llms.txt").text
    assert text.startswith("# Media generation\n> Asynchronous media generation")
    assert "- [POST /v1/gen-3-image-klein](/openapi.json): Text to image, or edit with up to ten references" in text
    assert "gen-pro-1.0-depth" not in text, "not served any more"


def test_the_guide_has_every_document(client: Client, repository: Path) -> None:
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


def test_pages_say_which_release_they_are(client: Client) -> None:
    assert f"gen-serve {version('gen-serve')}" in client.get("/").text
    assert client.get("/openapi.json").json()["info"]["version"] == version("gen-serve")


def test_a_browser_that_is_lost_gets_a_page(client: Client) -> None:
    page = client.get("/galery", headers={"accept": "text/html,*/*"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert 'href="/gallery"' in page.text
    for path, accept in (("/galery", "*/*"), ("/v1/gen-none", "text/html")):
        answer = client.get(path, headers={"accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_files_of_pages_are_kept_until_there_are_others(client: Client) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    paths = re.findall(r'(?:src|href)="(/pages/[^"]+)"', page.text)
    assert len(paths) > 20, "with all that its script imports"
    for path in paths:
        assert client.get(path).headers["cache-control"] == "public, max-age=31536000, immutable", path
    # A page of another release asks for its own files; they are here, but may not be kept.
    other = client.get(re.sub("/pages/[0-9a-f]{12}/", "/pages/0123456789ab/", paths[0]))
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")


def test_the_description_in_the_repository_is_current(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    openapi()
    assert (repository / "openapi.json").read_text() == capsys.readouterr().out, "run `make openapi`"


def test_the_running_service_describes_itself_so(client: Client, repository: Path) -> None:
    assert client.get("/openapi.json").json() == json.loads((repository / "openapi.json").read_text())


def test_every_error_of_an_operation_is_described(client: Client) -> None:
    description = client.get("/openapi.json").json()
    responses = description["paths"]["/v1/gen-3-image-klein"]["post"]["responses"]
    assert set(responses) == {"200", "401", "402", "403", "409", "413", "422", "429", "503"}
    assert "HTTPValidationError" not in description["components"]["schemas"], "the framework's form is not ours"


@promise("Limits", "`steps`: 1 to 16 (default 16): endpoint 1")
def test_the_fields_show_their_limits(client: Client) -> None:
    fields = client.get("/openapi.json").json()["components"]["schemas"]["ImageKleinRequest"]["properties"]
    (seed, _) = fields["seed"]["anyOf"]
    assert (seed["minimum"], seed["maximum"]) == (0, 4294967295)
    (steps, _) = fields["steps"]["anyOf"]
    assert (steps["minimum"], steps["maximum"], fields["steps"]["default"]) == (1, 16, 16)
    (images, _) = fields["images"]["anyOf"]
    assert (images["minItems"], images["maxItems"]) == (1, 10)
