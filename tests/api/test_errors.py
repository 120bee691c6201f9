"""Everything that goes wrong has one form, and tells nothing it should not."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest
from redis import Redis
from support.client import ENDPOINT, HOOK, Client, problems, refusal
from support.descriptions import described_paths
from support.http_service import Service, StartService
from support.pictures import encoded, picture
from support.promises import promise
from tool_endpoints import MINIMAL, OUTPAINTING
from video_requests import VIDEO, minimal

from deployments.contract.objects import ObjectStore
from serve_app.api.errors import OUT_OF_REACH, Code
from serve_app.launcher import proxy_start
from serve_app.launcher.embedded_redis import EmbeddedRedis

JSON = {"Content-Type": "application/json"}
NOT_JSON = "json_invalid"


@promise(
    "Errors",
    "HTTP 422: the request failed validation; the body is the validation error body (`detail` array of "
    "`loc`, `msg`, `type`).",
)
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"prompt": }',
        b'{"prompt": "x"',
        b"prompt=x",
        b'{"prompt": "\xff\xfe"}',
        b"\x00",
        b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_bodies_that_are_no_json(client: Client, service: Service, body: bytes) -> None:
    with service.unchanged():
        ((loc, kind),) = problems(client.post(ENDPOINT, content=body, headers=JSON))
    assert (loc[0], kind) == ("body", NOT_JSON)


@promise(
    "Errors",
    "HTTP 422: the request failed validation; the body is the validation error body (`detail` array of "
    "`loc`, `msg`, `type`).",
)
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", (["body"], "missing")),
        (b"null", (["body"], "model_attributes_type")),
        (b"3", (["body"], "model_attributes_type")),
        (b'"prompt"', (["body"], "model_attributes_type")),
        (b'[{"prompt": "x"}]', (["body"], "model_attributes_type")),
        (b'{"prompt": "x", "seed": NaN}', (["body", "seed"], "finite_number")),
        (b'{"prompt": "x", "seed": 1e999}', (["body", "seed"], "finite_number")),
        (b'{"prompt": "\\ud800"}', (["body", "prompt"], "string_unicode")),
    ],
)
def test_json_of_another_kind(client: Client, body: bytes, problem: tuple[list[str], str]) -> None:
    assert problems(client.post(ENDPOINT, content=body, headers=JSON)) == [problem]


@promise("What the service does", "Request and response bodies are JSON (`Content-Type: application/json`).")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_another_content_type(client: Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    response = client.post(ENDPOINT, content=b'{"prompt": "a cat"}', headers=headers)
    assert problems(response) == [(["header", "Content-Type"], "content_type")]
    assert "application/json" in response.json()["detail"][0]["msg"]


def test_whoever_tries_with_curl_is_told_what_to_add(client: Client) -> None:
    """`curl -d '{"prompt": "a cat"}'` says that it sends a form."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "User-Agent": "curl/8.5.0", "Accept": "*/*"}
    response = client.post(ENDPOINT, content=b'{"prompt": "a cat"}', headers=headers)
    assert response.json()["detail"][0]["msg"].endswith("add -H 'Content-Type: application/json', or use --json")


@promise("Decided: submission", '404 `{"detail": "Not Found"}`')
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/pages/none.js"),
        ("GET", "/v1"),
        ("POST", "/v1/gen-9"),
        ("GET", "/v1/nothing"),
        ("GET", "/docs/static/none.js"),
        ("GET", "/docs/static/../../ingress.py"),
        ("GET", "/docs/static/%2e%2e/%2e%2e/core.py"),
        ("GET", "/%ff"),
    ],
)
def test_unknown_paths(client: Client, method: str, path: str) -> None:
    assert refusal(client.request(method, path), 404) == "Not Found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", ENDPOINT, "POST"),
        ("PUT", ENDPOINT, "POST"),
        ("POST", "/v1/get_result", "GET, HEAD"),
        ("POST", "/v1/tasks", "GET, HEAD"),
        ("GET", "/v1/tasks/some-id", "DELETE"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/docs/static/favicon.png", "GET, HEAD"),
        ("OPTIONS", "/v1/tasks", "GET, HEAD"),
    ],
)
def test_wrong_methods(client: Client, method: str, path: str, allowed: str) -> None:
    response = client.request(method, path)
    assert refusal(response, 405) == f"Method Not Allowed: this path takes {allowed}"
    assert response.headers["allow"] == allowed


def test_a_path_takes_what_it_says_that_it_takes(client: Client, service: Service) -> None:
    """Of every path of the description, whatever number of routes it has."""
    described: dict[str, dict[str, Any]] = described_paths(service.app)
    patterns = {re.sub(r"\{[^}]*\}", "[^/]+", path): operations for path, operations in described.items()}
    for path in described:
        some = re.sub(r"\{[^}]*\}", "x", path)
        taken = {
            m.upper() for pattern, operations in patterns.items() if re.fullmatch(pattern, some) for m in operations
        }
        response = client.request("TRACE", some)
        allowed = set(response.headers["allow"].split(", "))
        assert (response.status_code, allowed) == (405, taken | ({"HEAD"} if "GET" in taken else set())), path


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/healthz", 200),
        ("/v1/tasks", 200),
        ("/v1/credits", 200),
        ("/v1/get_result?id=none", 404),
        ("/v1/tasks?limit=0", 422),
    ],
)
def test_head_is_get_without_a_body(client: Client, path: str, status: int) -> None:
    got, told = client.get(path), client.head(path)
    assert (told.status_code, told.content) == (status, b"")
    assert told.headers["content-type"] == got.headers["content-type"]
    assert told.headers["content-length"] == got.headers["content-length"]


@promise("Decided: errors", "task store unreachable: `Retry-After`; nothing was charged")
def test_without_the_task_store(start_service: StartService, doomed_redis: EmbeddedRedis) -> None:
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client:
        task_id = client.accepted()
        doomed_redis.stop()
        requests = [
            ("POST", ENDPOINT),
            ("GET", f"/v1/get_result?id={task_id}"),
            ("GET", "/v1/tasks"),
            ("DELETE", f"/v1/tasks/{task_id}"),
        ]
        body = {"prompt": "a cat", "images": [encoded(picture())]}
        # Side by side: each insists for a while before it gives up.
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda request: client.request(*request, json=body), requests))
        for response in answers:
            assert "nothing was charged" in refusal(response, 503)
            assert int(response.headers["retry-after"]) >= 1
        with service.figures() as figures:
            assert "nothing was charged" in refusal(figures.get("/metrics"), 503)
        assert client.get("/healthz").status_code == 200
        assert not [path for path in (service.settings.data_dir / "objects").rglob("*") if path.is_file()]


def test_a_task_store_that_is_nearly_full(start_service: StartService, doomed_redis: EmbeddedRedis) -> None:
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client, Redis.from_url(doomed_redis.url) as redis:
        task_id = client.accepted()
        used = int(redis.info("memory")["used_memory"])
        redis.config_set("maxmemory", int(used / 0.92))
        response = client.submit()
        assert "nearly full" in refusal(response, 503)
        assert int(response.headers["retry-after"]) >= 1
        assert client.poll(task_id).json()["status"] == "Pending"
        with service.figures() as figures:
            text = figures.get("/metrics").text
        metrics = dict(line.split() for line in text.splitlines() if "memory" in line.split()[0])
        assert float(metrics["gen_store_memory_bytes"]) > 0.9 * float(metrics["gen_store_memory_limit_bytes"]) > 0
        redis.config_set("maxmemory", 0)
        client.accepted()


def test_a_task_store_that_hangs(start_service: StartService, doomed_redis: EmbeddedRedis) -> None:
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client:
        client.accepted()
        assert doomed_redis.pid is not None
        os.kill(doomed_redis.pid, signal.SIGSTOP)
        try:
            response = client.submit()
        finally:
            os.kill(doomed_redis.pid, signal.SIGCONT)
        assert refusal(response, 503) == OUT_OF_REACH
        assert len(client.get("/v1/tasks").json()["tasks"]) == 1, "what nobody waits for any more is not carried out"


@promise("Decided: errors", '`{"detail": "<string>"}` for all but 422 validation')
def test_an_unforeseen_failure_tells_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(store: ObjectStore, key: str, data: bytes, content_type: str) -> None:
        raise RuntimeError(f"no one thought of {key}")

    monkeypatch.setattr(ObjectStore, "put", fail)
    response = client.submit(images=[encoded(picture())])
    assert refusal(response, 500) == "Internal Server Error"
    assert client.submit().status_code == 200, "the next one is served"
    assert "unhandled error on POST" in caplog.text, "the operator is told"


SECRET = "hunter2-hunter2"
PICTURE = encoded(picture(90, 70))


@pytest.mark.parametrize("path", ["/v1/tasks?limit=0", "/v1/nothing", "/v1/tasks/none/links"])
def test_the_id_of_the_request_is_in_the_answer(client: Client, path: str) -> None:
    response = client.post(path, json={}, headers={"x-request-id": "3f1c"})
    assert response.status_code >= 400
    assert response.json()["request_id"] == "3f1c"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("PUT", "/v1/tasks", 405, "method_not_allowed"),
        ("DELETE", "/v1/tasks/none", 404, "task_not_found"),
        ("GET", "/v1/finetune_details?finetune_id=none", 404, "finetune_not_found"),
        ("GET", "/v1/results/results/none.png?se=1&sig=x", 403, "link_expired"),
        ("GET", "/v1/admin/fleet", 403, "permission_denied"),
    ],
)
def test_programs_know_errors_by_their_codes(client: Client, method: str, path: str, status: int, code: str) -> None:
    response = client.request(method, path)
    refusal(response, status)
    assert response.json()["code"] == code


def test_every_code_is_documented(repository: Path) -> None:
    rows = re.findall(r"^\| (`\w+`.*?) \| [45]", (repository / "docs/api.md").read_text(), re.MULTILINE)
    documented = re.findall(r"`(\w+)`", "".join(rows))
    assert set(documented) >= set(get_args(Code)) - {"error"}
    assert set(documented) >= set(proxy_start._CODES.values())


@promise("Decided: errors", "never echo the value of a secret or an image")
@pytest.mark.parametrize(
    "body",
    [
        {"steps": 99},
        {"webhook_secret": [SECRET]},
        {"webhook_secret": SECRET * 100},
        {"webhook_secret": f"whsec_{SECRET}!"},
        {"webhook_secret": {"secret": SECRET}},
        {"images": PICTURE},
        {"images": [PICTURE] * 11},
        {"images": [PICTURE, PICTURE[:-40]]},
        {"images": [PICTURE, {"data": PICTURE}]},
        {"safety_tolerance": 7},
        {"width": 64},
        {"more": SECRET},
        {"webhook_url": f"https://{SECRET}@hooks.test/"},
        {"webhook_url": f"http://127.0.0.1/?{SECRET}"},
        {"user": ["user-4711"]},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_no_error_repeats_a_secret_or_a_picture(client: Client, body: dict[str, Any]) -> None:
    sent = {"images": [PICTURE], "webhook_url": HOOK, "webhook_secret": SECRET, "user": "user-4711"}
    response = client.submit(**(sent | body))
    problems(response)
    for value in (SECRET, PICTURE[:40], "user-4711"):
        assert value not in response.text


KLEIN = ENDPOINT.removeprefix("/v1/")


@pytest.mark.parametrize(
    ("endpoint", "body", "field", "meant"),
    [
        (KLEIN, {"prompt": "x"}, "image", "images"),
        (KLEIN, {"prompt": "x"}, "aspectRatio", "aspect_ratio"),
        (KLEIN, {"prompt": "x"}, "Prompt", "prompt"),
        (KLEIN, {"prompt": "x"}, "safety_tolerence", "safety_tolerance"),
        (f"{KLEIN}-finetuned", {"prompt": "x", "finetune_id": "x"}, "finetune_strenght", "finetune_strength"),
        (OUTPAINTING, MINIMAL[OUTPAINTING], "autocrop", "auto_crop"),
        (VIDEO, minimal("i2v"), "keyframe", "keyframes"),
        (VIDEO, minimal("t2v"), "durations", "duration"),
    ],
)
def test_an_unknown_field_that_is_nearly_one(
    client: Client, endpoint: str, body: dict[str, Any], field: str, meant: str
) -> None:
    response = client.order(endpoint, **body, **{field: 1})
    assert problems(response) == [(["body", field], "extra_forbidden")]
    assert response.json()["detail"][0]["msg"].endswith(f": did you mean {meant}?")
    priced = client.post("/v1/pricing", json={"path": f"/v1/{endpoint}", "body": {**body, field: 1}})
    assert priced.json()["detail"][0]["msg"] == response.json()["detail"][0]["msg"]


@pytest.mark.parametrize(
    ("endpoint", "body", "field"),
    [
        (KLEIN, {"prompt": "x"}, "negative_prompt"),
        (KLEIN, {"prompt": "x"}, "zzz"),
        (KLEIN, {"prompt": "x"}, "prompt" * 2000),
        (VIDEO, minimal("t2v"), "keyframe"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_an_unknown_field_that_is_like_none(client: Client, endpoint: str, body: dict[str, Any], field: str) -> None:
    (entry,) = client.order(endpoint, **body, **{field: 1}).json()["detail"]
    assert (entry["type"], entry["msg"]) == ("extra_forbidden", "Extra inputs are not permitted")


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("POST", "/v1/gen-2-maxx", "/v1/gen-2-max"),
        ("POST", "/v1/gen-kontext-max", "/v1/gen-kontext-pro"),
        ("POST", "/v1/gen-pro-1.2", "/v1/gen-pro-1.1"),
        ("POST", "/v1/GEN-2-PRO", "/v1/gen-2-pro"),
        ("POST", "/v1/gen-3-image", "/v1/gen-3-image-klein"),
        ("POST", "/gen-2-max", "/v1/gen-2-max"),
        ("GET", "/v1/get_results", "/v1/get_result"),
        ("GET", "/v1/tasks/", "/v1/tasks"),
        ("GET", "/health", "/healthz"),
    ],
)
def test_an_unknown_path_that_is_nearly_one(client: Client, method: str, path: str, meant: str) -> None:
    assert refusal(client.request(method, path, json={}), 404) == f"Not Found: did you mean {meant}?"
