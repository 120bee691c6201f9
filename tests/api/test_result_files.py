"""The files behind the signed links of a local object store."""

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


@pytest.fixture
def link(client: Client, worker: Worker) -> str:
    """A signed link to an image; it needs no key, so the client has none from here on."""
    task_id = client.create_task()
    worker.deliver(task_id, image_file(form="JPEG"))
    link = client.poll(task_id).json()["result"]["sample"]
    del client.headers["x-key"]
    return link


@pytest.fixture
def data() -> bytes:
    return image_file(form="JPEG")


def assert_closed(response: httpx2.Response, status: int = 403) -> None:
    assert response.status_code == status
    assert set(response.json()) == {"detail", "code"}
    assert isinstance(response.json()["detail"], str)
    assert response.headers["access-control-allow-origin"] == "*", "a page must be able to read why"


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
@pytest.mark.parametrize("extension", ["jpeg", "png", "webp"])
def test_a_file_is_served_as_what_it_is(client: Client, worker: Worker, extension: str) -> None:
    data, task_id = image_file(form=extension), client.create_task(output_format=extension)
    worker.deliver(task_id, data, extension)
    response = client.get(client.poll(task_id).json()["result"]["sample"])
    assert (response.status_code, response.content) == (200, data)
    assert response.headers["content-type"] == f"image/{extension}"
    assert response.headers["content-length"] == str(len(data))
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_file_that_a_client_has_is_not_sent_again(client: Client, link: str, method: str) -> None:
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
def test_a_range(client: Client, link: str, data: bytes, range_header: str, start: int, stop: int | None) -> None:
    response = client.get(link, headers={"Range": range_header})
    part = data[start:stop]
    assert (response.status_code, response.content) == (206, part)
    first = start % len(data)
    assert response.headers["content-range"] == f"bytes {first}-{first + len(part) - 1}/{len(data)}"
    assert response.headers["content-type"] == "image/jpeg"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_range_past_the_end(client: Client, link: str, data: bytes, method: str) -> None:
    response = client.request(method, link, headers={"Range": f"bytes={len(data)}-"})
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{len(data)}"
    if method == "GET":
        assert_closed(response, 416)


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
def test_a_page_elsewhere_may_ask_for_ranges(client: Client, link: str) -> None:
    asks = {"Origin": "https://page.test", "Access-Control-Request-Method": "GET"}
    response = client.options(link, headers={**asks, "Access-Control-Request-Headers": "range"})
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
        {"se": None},
        {"se": "99999999999"},
        {"se": "\N{SUPERSCRIPT TWO}"},
        {"se": None, "sig": None},
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_link_that_was_changed_is_closed(
    client: Client, link: str, query: dict[str, str | None], method: str
) -> None:
    response = client.request(method, change_query(link, **query))
    assert response.status_code == 403
    if method == "GET":
        assert_closed(response)


@promise("Decided: polling", "Life: 10 min for images, 1 h for video (configurable); every poll signs anew.")
def test_a_link_opens_its_own_file_only_and_not_for_ever(
    client: Client, service: Service, worker: Worker, link: str
) -> None:
    worker.run(worker.objects.put("results/other/1/image.jpeg", b"other", "image/jpeg"))
    assert_closed(client.get(urlsplit(link)._replace(path="/v1/results/results/other/1/image.jpeg").geturl()))
    signer = link_signer(service)
    key = urlsplit(link).path.removeprefix("/v1/results/")
    assert client.get(service.base_url + signer.sign(key, 600, time.time())).status_code == 200
    assert_closed(client.get(service.base_url + signer.sign(key, 600, time.time() - 1000)))


def link_signer(service: Service) -> LinkSigner:
    """Signs as the service does, also what the service would not."""
    redis, prefix = service.worker.tasks.redis, service.settings.redis.prefix

    async def secret() -> bytes:
        return bytes.fromhex(str(await redis.get(f"{prefix}secret:links")))

    return LinkSigner(service.worker.run(secret()))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/results/../../../../etc/passwd",
        "/v1/results/%2e%2e/%2e%2e/etc/passwd",
        "/v1/results/..%2f..%2fetc%2fpasswd",
        "/v1/results//etc/passwd",
        "/v1/results/results/../../redis/password",
        "/v1/results/results%00/x",
        "/v1/results/results",
    ],
)
def test_nothing_else_on_the_disk_can_be_reached(service: Service, link: str, path: str) -> None:
    # On the bare wire: a client library would tidy the path first.
    query = urlsplit(link).query
    with socket.create_connection(service.address) as wire:
        wire.sendall(f"GET {path}?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    assert int(answer.split()[1]) in (403, 404)
    assert b"root:" not in answer


IMAGE = image_file(form="JPEG")


@pytest.fixture
def task_id(client: Client, service: Service) -> str:
    task_id = client.submit(prompt="a red star").json()["id"]
    service.worker.deliver(task_id, IMAGE)
    return task_id


def test_whoever_has_the_link_sees_the_result_as_long_as_it_is_kept(
    client: Client, service: Service, task_id: str
) -> None:
    week = 7 * 24 * 3600
    for requested_s, granted_s in ((3600, 3600), (week, service.settings.tasks.retention_s)):
        link = client.post(f"/v1/tasks/{task_id}/links", json={"expires_in": requested_s}).json()
        assert link["expires"] == pytest.approx(time.time() + granted_s, abs=60)
        assert float(parse_qs(urlsplit(link["url"]).query)["se"][0]) == pytest.approx(link["expires"], abs=2)
        assert httpx2.get(link["url"], trust_env=False, timeout=60).content == IMAGE
        page = httpx2.get(link["page"], trust_env=False, timeout=60)
        assert page.status_code == 200
        image = re.search('property="og:image" content="([^"]+)"', page.text)
        assert image
        assert httpx2.get(html.unescape(image[1]), trust_env=False, timeout=60).content == IMAGE
        assert "a red star" in page.text
        assert "/?endpoint=gen-3-image-klein&amp;prompt=a+red+star" in page.text
    for seconds in (59, week + 1, "soon"):
        assert client.post(f"/v1/tasks/{task_id}/links", json={"expires_in": seconds}).status_code == 422


def test_a_shared_page_needs_its_signature_and_a_result(client: Client, service: Service) -> None:
    task_id = client.submit(prompt="<script>alert(1)</script>").json()["id"]
    service.worker.deliver(task_id, IMAGE)
    page = client.post(f"/v1/tasks/{task_id}/links", json={}).json()["page"]
    assert "<script>alert" not in httpx2.get(page, trust_env=False, timeout=60).text
    forged = httpx2.get(page[:-1] + ("A" if page[-1] != "A" else "B"), trust_env=False, timeout=60)
    assert (forged.status_code, "This link no longer works" in forged.text) == (403, True)
    other = client.submit(prompt="a red star").json()["id"]
    elsewhere = httpx2.get(page.replace(task_id, other), trust_env=False, timeout=60)
    assert elsewhere.status_code == 403
    file = client.get(urlsplit(page)._replace(path=f"/v1/results/{task_id}").geturl())
    assert file.status_code == 403, "it opens no file"


def test_a_shared_page_is_there_until_its_links_are_revoked(client: Client, service: Service, task_id: str) -> None:
    def show(page: str) -> int:
        return httpx2.get(page, trust_env=False, timeout=60).status_code

    path = f"/v1/tasks/{task_id}/links"
    page = client.post(path, json={}).json()["page"]
    other = client.post(path, json={"expires_in": 60}).json()["page"]
    with service.client() as another:
        assert refusal(another.delete(path), 404) == "Task not found"
    assert (show(page), show(other)) == (200, 200)
    assert client.delete(path).status_code == 204
    assert (show(page), show(other)) == (403, 403)
    assert show(client.post(path, json={}).json()["page"]) == 200
    assert show(page) == 403, "not by another link either"


def test_there_are_none_to_what_is_not_made_or_not_ones_own(client: Client, service: Service, task_id: str) -> None:
    waiting = client.submit(prompt="a red star").json()["id"]
    wrong = client.post(f"/v1/tasks/{waiting}/links", json={})
    assert refusal(wrong, 409) == "The task has no result: it is Pending"
    with service.client() as another:
        assert refusal(another.post(f"/v1/tasks/{task_id}/links", json={}), 404) == "Task not found"
