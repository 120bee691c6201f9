"""Files behind signed links of a local object store, and shared pages."""

from __future__ import annotations

import html
import re
import socket
import time
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from support.http_client import Client, refusal
from support.http_service import Service
from support.images import image_file
from support.promises import promise
from support.worker import Worker

from serve_app.inputs.links import LinkSigner

IMAGE = image_file(form="JPEG")


@pytest.fixture
def link(client: Client, worker: Worker) -> str:
    """A signed link to an image. From here on the client has no key."""
    task_id = client.create_task()
    worker.deliver(task_id, IMAGE)
    link = client.poll(task_id).json()["result"]["sample"]
    del client.headers["x-key"]
    return link


def get(url: str) -> httpx2.Response:
    return httpx2.get(url, trust_env=False, timeout=60)


def assert_closed(response: httpx2.Response, status: int = 403) -> None:
    assert response.status_code == status
    assert set(response.json()) == {"detail", "code"}
    assert isinstance(response.json()["detail"], str)
    assert response.headers["access-control-allow-origin"] == "*", "pages may read the error"


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
@pytest.mark.parametrize("extension", ["jpeg", "webp"])
def test_file_is_served_with_its_type(client: Client, worker: Worker, extension: str) -> None:
    data, task_id = image_file(form=extension), client.create_task(output_format=extension)
    worker.deliver(task_id, data, extension)
    response = client.get(client.poll(task_id).json()["result"]["sample"])
    assert (response.status_code, response.content) == (200, data)
    assert response.headers["content-type"] == f"image/{extension}"
    assert response.headers["content-length"] == str(len(data))
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_unchanged_file_is_304(client: Client, link: str, method: str) -> None:
    first = client.get(link)
    for condition in (
        {"If-None-Match": first.headers["etag"]},
        {"If-None-Match": f'"other", W/{first.headers["etag"]}'},
        {"If-Modified-Since": first.headers["last-modified"]},
    ):
        again = client.request(method, link, headers=condition)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert again.headers["access-control-allow-origin"] == "*"
    assert client.get(link, headers={"If-None-Match": '"other"'}).status_code == 200


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
@pytest.mark.parametrize(
    ("range_header", "start", "stop"),
    [("bytes=0-0", 0, 1), ("bytes=0-99", 0, 100), ("bytes=100-", 100, None), ("bytes=-10", -10, None)],
)
def test_range_of_a_file_is_served(client: Client, link: str, range_header: str, start: int, stop: int | None) -> None:
    response = client.get(link, headers={"Range": range_header})
    part = IMAGE[start:stop]
    assert (response.status_code, response.content) == (206, part)
    first = start % len(IMAGE)
    assert response.headers["content-range"] == f"bytes {first}-{first + len(part) - 1}/{len(IMAGE)}"
    assert response.headers["content-type"] == "image/jpeg"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_range_beyond_the_file_is_416(client: Client, link: str, method: str) -> None:
    response = client.request(method, link, headers={"Range": f"bytes={len(IMAGE)}-"})
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{len(IMAGE)}"
    if method == "GET":
        assert_closed(response, 416)


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
def test_pages_of_other_origins_may_read_ranges(client: Client, link: str) -> None:
    preflight = {"Origin": "https://page.test", "Access-Control-Request-Method": "GET"}
    response = client.options(link, headers={**preflight, "Access-Control-Request-Headers": "range"})
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["access-control-allow-origin"] == "*"
    assert "GET" in response.headers["access-control-allow-methods"]
    assert "range" in response.headers["access-control-allow-headers"].lower()
    exposed = client.get(link, headers={"Origin": "https://page.test"}).headers["access-control-expose-headers"]
    assert "Content-Range" in exposed


def change_query(link: str, **query: str | None) -> str:
    parts = urlsplit(link)
    pairs = {name: values[0] for name, values in parse_qs(parts.query).items()} | query
    return parts._replace(query=urlencode({k: v for k, v in pairs.items() if v is not None})).geturl()


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
@pytest.mark.parametrize(
    "query",
    [
        {"sig": "AAAA"},
        {"sig": "\N{CAT FACE}"},
        {"se": "99999999999"},
        {"se": "\N{SUPERSCRIPT TWO}"},
        {"se": None, "sig": None},
    ],
)
def test_changed_link_is_closed(client: Client, link: str, query: dict[str, str | None]) -> None:
    assert_closed(client.get(change_query(link, **query)))
    assert client.head(change_query(link, **query)).status_code == 403


@promise("Decided: polling", "Life: 10 min for images, 1 h for video (configurable); every poll signs anew.")
def test_link_opens_its_file_until_it_expires(client: Client, service: Service, worker: Worker, link: str) -> None:
    worker.run(worker.objects.put("results/other/1/image.jpeg", b"other", "image/jpeg"))
    assert_closed(client.get(urlsplit(link)._replace(path="/v1/results/results/other/1/image.jpeg").geturl()))
    signer = link_signer(service)
    key = urlsplit(link).path.removeprefix("/v1/results/")
    assert client.get(service.base_url + signer.sign(key, 600, time.time())).status_code == 200
    assert_closed(client.get(service.base_url + signer.sign(key, 600, time.time() - 1000)))


def link_signer(service: Service) -> LinkSigner:
    """Returns a signer with the service's secret."""
    redis, prefix = service.worker.tasks.redis, service.settings.redis.prefix

    async def secret() -> bytes:
        return bytes.fromhex(str(await redis.get(f"{prefix}secret:links")))

    return LinkSigner(service.worker.run(secret()))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/results/../../../../etc/passwd",
        "/v1/results/..%2f..%2fetc%2fpasswd",
        "/v1/results//etc/passwd",
        "/v1/results/results%00/x",
    ],
)
def test_link_opens_no_other_path_of_the_disk(service: Service, link: str, path: str) -> None:
    # A client library would normalize the path.
    query = urlsplit(link).query
    with socket.create_connection(service.address) as wire:
        wire.sendall(f"GET {path}?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    assert int(answer.split()[1]) in (403, 404)
    assert b"root:" not in answer


# Shared links and pages


@pytest.fixture
def task_id(client: Client, service: Service) -> str:
    task_id = client.submit(prompt="a red star").json()["id"]
    service.worker.deliver(task_id, IMAGE)
    return task_id


def test_shared_link_shows_the_result_until_it_expires(client: Client, service: Service, task_id: str) -> None:
    week = 7 * 24 * 3600
    for requested_s, granted_s in ((3600, 3600), (week, service.settings.tasks.retention_s)):
        link = client.post(f"/v1/tasks/{task_id}/links", json={"expires_in": requested_s}).json()
        assert link["expires"] == pytest.approx(time.time() + granted_s, abs=60)
        assert float(parse_qs(urlsplit(link["url"]).query)["se"][0]) == pytest.approx(link["expires"], abs=2)
        assert get(link["url"]).content == IMAGE
        page = get(link["page"])
        assert page.status_code == 200
        image = re.search('property="og:image" content="([^"]+)"', page.text)
        assert image
        assert get(html.unescape(image[1])).content == IMAGE
        assert "a red star" in page.text
        assert "/?endpoint=gen-3-image-klein&amp;prompt=a+red+star" in page.text
    for seconds in (59, week + 1, "soon"):
        assert client.post(f"/v1/tasks/{task_id}/links", json={"expires_in": seconds}).status_code == 422


def test_shared_page_needs_its_own_signature(client: Client, service: Service) -> None:
    task_id = client.submit(prompt="<script>alert(1)</script>").json()["id"]
    service.worker.deliver(task_id, IMAGE)
    page = client.post(f"/v1/tasks/{task_id}/links", json={}).json()["page"]
    assert "<script>alert" not in get(page).text
    forged = get(page[:-1] + ("A" if page[-1] != "A" else "B"))
    assert (forged.status_code, "This link no longer works" in forged.text) == (403, True)
    other = client.submit(prompt="a red star").json()["id"]
    assert get(page.replace(task_id, other)).status_code == 403
    file = client.get(urlsplit(page)._replace(path=f"/v1/results/{task_id}").geturl())
    assert file.status_code == 403, "a page's signature opens no file"


def test_revoking_links_closes_their_pages(client: Client, service: Service, task_id: str) -> None:
    def show(page: str) -> int:
        return get(page).status_code

    path = f"/v1/tasks/{task_id}/links"
    page = client.post(path, json={}).json()["page"]
    other = client.post(path, json={"expires_in": 60}).json()["page"]
    with service.client() as another:
        assert refusal(another.delete(path), 404) == "Task not found"
    assert (show(page), show(other)) == (200, 200)
    assert client.delete(path).status_code == 204
    assert (show(page), show(other)) == (403, 403)
    assert show(client.post(path, json={}).json()["page"]) == 200
    assert show(page) == 403, "a new link does not reopen it"


def test_only_own_results_can_be_shared(client: Client, service: Service, task_id: str) -> None:
    waiting = client.submit(prompt="a red star").json()["id"]
    wrong = client.post(f"/v1/tasks/{waiting}/links", json={})
    assert refusal(wrong, 409) == "The task has no result: it is Pending"
    with service.client() as another:
        assert refusal(another.post(f"/v1/tasks/{task_id}/links", json={}), 404) == "Task not found"
