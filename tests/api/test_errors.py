"""Errors: form, codes, a failing task store, secrets that must not appear."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any, get_args

import pytest
from redis import Redis
from support.http_client import ENDPOINT, HOOK, Client, problems, refusal
from support.http_service import Service, StartService, described_paths
from support.images import image_file, to_base64
from support.promises import promise
from tool_endpoints import MINIMAL, OUTPAINTING
from video_requests import VIDEO, minimal

from deployments.contract.objects import ObjectStore
from serve_app.api import metrics as metrics_app
from serve_app.api import services
from serve_app.api.errors import OUTCOME_UNKNOWN, Code
from serve_app.launcher import proxy_start
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.tasks import store

JSON = {"Content-Type": "application/json"}
NOT_JSON = "json_invalid"


@promise(
    "Errors",
    "HTTP 422: the request failed validation; the body is the validation error body (`detail` array of "
    "`loc`, `msg`, `type`).",
)
@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        (b"prompt=x", None, NOT_JSON),
        (b'{"prompt": "\xff\xfe"}', None, NOT_JSON),
        (b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}", None, NOT_JSON),
        (b"", ["body"], "missing"),
        (b'[{"prompt": "x"}]', ["body"], "model_attributes_type"),
        (b'{"prompt": "x", "seed": NaN}', ["body", "seed"], "finite_number"),
        (b'{"prompt": "x", "seed": 1e999}', ["body", "seed"], "finite_number"),
        (b'{"prompt": "\\ud800"}', ["body", "prompt"], "string_unicode"),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else "",
)
def test_invalid_body_is_rejected(
    client: Client, service: Service, body: bytes, loc: list[str] | None, kind: str
) -> None:
    with service.assert_unchanged():
        ((location, error_kind),) = problems(client.post(ENDPOINT, content=body, headers=JSON))
    assert (location if loc else location[0], error_kind) == (loc or "body", kind)


@promise("What the service does", "Request and response bodies are JSON (`Content-Type: application/json`).")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_other_content_type_is_rejected(client: Client, kind: str | None) -> None:
    headers = {"User-Agent": "curl/8.5.0"} | ({} if kind is None else {"Content-Type": kind})
    response = client.post(ENDPOINT, content=b'{"prompt": "a cat"}', headers=headers)
    assert problems(response) == [(["header", "Content-Type"], "content_type")]
    message = response.json()["detail"][0]["msg"]
    assert "application/json" in message
    assert ("-H 'Content-Type: application/json'" in message) is bool(kind and "form" in kind)


@promise("Decided: submission", '404 `{"detail": "Not Found"}`')
@pytest.mark.parametrize(
    ("method", "path", "suggestion"),
    [
        ("GET", "/v1", None),
        ("POST", "/v1/gen-9", None),
        ("GET", "/docs/static/none.js", None),
        ("GET", "/docs/static/%2e%2e/%2e%2e/core.py", None),
        ("GET", "/%ff", None),
        ("POST", "/v1/gen-2-maxx", "/v1/gen-2-max"),
        ("POST", "/v1/GEN-2-PRO", "/v1/gen-2-pro"),
        ("POST", "/gen-2-max", "/v1/gen-2-max"),
        ("GET", "/v1/get_results", "/v1/get_result"),
        ("GET", "/v1/tasks/", "/v1/tasks"),
        ("GET", "/health", "/healthz"),
    ],
)
def test_unknown_path_is_404_with_a_suggestion(client: Client, method: str, path: str, suggestion: str | None) -> None:
    advice = f": did you mean {suggestion}?" if suggestion else ""
    assert refusal(client.request(method, path, json={}), 404) == f"Not Found{advice}"


def test_405_lists_the_methods_of_every_path(client: Client, service: Service) -> None:
    described: dict[str, dict[str, Any]] = described_paths(service.app)
    patterns = {re.sub(r"\{[^}]*\}", "[^/]+", path): operations for path, operations in described.items()}
    assert refusal(client.put(ENDPOINT), 405) == "Method Not Allowed: this path takes POST"
    for path in described:
        some = re.sub(r"\{[^}]*\}", "x", path)
        methods = {
            m.upper() for pattern, operations in patterns.items() if re.fullmatch(pattern, some) for m in operations
        }
        response = client.request("TRACE", some)
        allowed = set(response.headers["allow"].split(", "))
        assert (response.status_code, allowed) == (405, methods | ({"HEAD"} if "GET" in methods else set())), path


def test_head_is_get_without_a_body(client: Client) -> None:
    for path, status in (("/v1/tasks", 200), ("/v1/get_result?id=none", 404)):
        head = client.head(path)
        assert (head.status_code, head.content) == (status, b"")
        assert head.headers["content-length"] == client.get(path).headers["content-length"]


# The task store


def set_answer_limit(service: Service, seconds: float) -> None:
    """Sets how long the service waits for the task store's answers."""
    service.app.state.services.tasks.store.redis.answer_s = seconds


@promise("Decided: errors", "task store unreachable: `Retry-After`; nothing was charged")
def test_unreachable_task_store_is_503(
    start_service: StartService, doomed_redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client:
        task_id = client.create_task()
        doomed_redis.stop()
        set_answer_limit(service, 0.3)
        monkeypatch.setattr(metrics_app, "ANSWER_S", 0.3)
        requests = [
            ("POST", ENDPOINT),
            ("GET", f"/v1/get_result?id={task_id}"),
            ("GET", "/v1/tasks"),
            ("DELETE", f"/v1/tasks/{task_id}"),
        ]
        body = {"prompt": "a cat", "images": [to_base64(image_file())]}
        for method, path in requests:
            response = client.request(method, path, json=body)
            assert "nothing was charged" in refusal(response, 503)
            assert int(response.headers["retry-after"]) >= 1
        with service.metrics() as metrics_client:
            assert "nothing was charged" in refusal(metrics_client.get("/metrics"), 503)
        assert client.get("/healthz").status_code == 200
        assert not [path for path in (service.settings.data_dir / "objects").rglob("*") if path.is_file()]


def test_nearly_full_task_store_rejects_submissions_only(
    start_service: StartService, doomed_redis: EmbeddedRedis
) -> None:
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client, Redis.from_url(doomed_redis.url) as redis:
        task_id = client.create_task()
        used = int(redis.info("memory")["used_memory"])
        redis.config_set("maxmemory", int(used / 0.92))
        redis.delete(f"{service.settings.redis.prefix}memory")  # in place of waiting for the reading to expire
        response = client.submit()
        assert "nearly full" in refusal(response, 503)
        assert int(response.headers["retry-after"]) >= 1
        assert client.poll(task_id).json()["status"] == "Pending"
        with service.metrics() as metrics_client:
            text = metrics_client.get("/metrics").text
        metrics = dict(line.split() for line in text.splitlines() if "memory" in line.split()[0])
        assert float(metrics["gen_store_memory_bytes"]) > 0.9 * float(metrics["gen_store_memory_limit_bytes"]) > 0
        redis.config_set("maxmemory", 0)
        redis.delete(f"{service.settings.redis.prefix}memory")
        client.create_task()


def test_hanging_task_store_leaves_the_outcome_unknown(
    start_service: StartService, doomed_redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.SUBMIT_S < services.ANSWER_S
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client:
        client.create_task()
        assert doomed_redis.pid is not None
        os.kill(doomed_redis.pid, signal.SIGSTOP)
        set_answer_limit(service, 0.5)
        monkeypatch.setattr(store, "SUBMIT_S", 0.1)
        try:
            response = client.submit()
        finally:
            os.kill(doomed_redis.pid, signal.SIGCONT)
            set_answer_limit(service, 60)
        assert refusal(response, 503) == OUTCOME_UNKNOWN
        assert len(client.get("/v1/tasks").json()["tasks"]) == 1, "an abandoned submission is not carried out"


@promise("Decided: errors", '`{"detail": "<string>"}` for all but 422 validation')
def test_unexpected_error_shows_no_detail(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(store: ObjectStore, key: str, data: bytes, content_type: str) -> None:
        raise RuntimeError(f"unexpected {key}")

    monkeypatch.setattr(ObjectStore, "put", fail)
    response = client.submit(images=[to_base64(image_file())])
    assert refusal(response, 500) == "Internal Server Error"
    assert client.submit().status_code == 200


# What errors show


SECRET = "hunter2-hunter2"
IMAGE = to_base64(image_file(90, 70))


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
def test_error_has_a_code_and_the_request_id(client: Client, method: str, path: str, status: int, code: str) -> None:
    response = client.request(method, path)
    refusal(response, status)
    assert response.json()["code"] == code
    assert client.request(method, path, headers={"x-request-id": "3f1c"}).json()["request_id"] == "3f1c"


def test_every_error_code_is_documented(repository: Path) -> None:
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
        {"webhook_secret": f"whsec_{SECRET}!"},
        {"images": [IMAGE, IMAGE[:-40]]},
        {"images": [IMAGE, {"data": IMAGE}]},
        {"more": SECRET},
        {"webhook_url": f"https://{SECRET}@hooks.test/"},
        {"webhook_url": f"http://127.0.0.1/?{SECRET}"},
        {"user": ["user-4711"]},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_errors_repeat_no_secret_and_no_image(client: Client, body: dict[str, Any]) -> None:
    request_body = {"images": [IMAGE], "webhook_url": HOOK, "webhook_secret": SECRET, "user": "user-4711"}
    response = client.submit(**(request_body | body))
    problems(response)
    for value in (SECRET, IMAGE[:40], "user-4711"):
        assert value not in response.text


KLEIN = ENDPOINT.removeprefix("/v1/")


@pytest.mark.parametrize(
    ("endpoint", "body", "field", "suggestion"),
    [
        (KLEIN, {"prompt": "x"}, "image", "images"),
        (KLEIN, {"prompt": "x"}, "aspectRatio", "aspect_ratio"),
        (f"{KLEIN}-finetuned", {"prompt": "x", "finetune_id": "x"}, "finetune_strenght", "finetune_strength"),
        (OUTPAINTING, MINIMAL[OUTPAINTING], "autocrop", "auto_crop"),
        (VIDEO, minimal("i2v"), "keyframe", "keyframes"),
        (KLEIN, {"prompt": "x"}, "prompt" * 2000, None),
        (VIDEO, minimal("t2v"), "keyframe", None),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_unknown_field_is_rejected_with_a_suggestion(
    client: Client, endpoint: str, body: dict[str, Any], field: str, suggestion: str | None
) -> None:
    (entry,) = client.order(endpoint, **body, **{field: 1}).json()["detail"]
    advice = f": did you mean {suggestion}?" if suggestion else ""
    assert (entry["type"], entry["msg"]) == ("extra_forbidden", f"Extra inputs are not permitted{advice}")
    priced = client.post("/v1/pricing", json={"path": f"/v1/{endpoint}", "body": {**body, field: 1}})
    assert priced.json()["detail"][0]["msg"] == entry["msg"]


def test_invalid_choice_lists_the_values(administrator: Client) -> None:
    response = administrator.post("/v1/invitations", json={"role": "king"})
    assert problems(response) == [(["body", "role"], "literal_error")]
    assert "'administrator', 'developer'" in response.json()["detail"][0]["msg"]
    assert "<" not in response.text


def test_private_answers_are_not_cached(client: Client) -> None:
    for path in ("/v1/tasks", "/v1/admin/keys", "/v1/nothing", "/v1/get_result?id=none"):
        assert client.get(path).headers["cache-control"] == "private, no-store", path
    assert "cache-control" not in client.get("/healthz").headers


def test_reference_cannot_be_framed(client: Client) -> None:
    for path in ("/docs", "/docs/admin"):
        headers = client.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "script-src 'self';" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
