"""Uploads of tuned models bound each other: nobody's keeps others' out, and no file costs more than it may."""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.client import Client, problems, refusal
from support.http_service import Service, StartService
from support.redis_process import until

from serve_app.config.settings import FinetuneSettings

PATH = "/v1/finetunes?name=ink&base=gen-3-image-klein"
TRICKLED = b"x"


@contextmanager
def upload_under_way(client: Client, service: Service) -> Iterator[http.client.HTTPConnection]:
    """An upload that is being received, and of which more is to come than will.

    Its client asked to be told when to send, as RFC 9110 (10.1.1) has it: what comes then is the service reading.
    """
    connection = http.client.HTTPConnection(*service.address, timeout=60)
    try:
        connection.putrequest("POST", PATH)
        connection.putheader("x-key", client.secret)
        connection.putheader("Content-Length", "1000000")
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert interim_answer(connection).startswith(b"HTTP/1.1 100 ")
        connection.send(TRICKLED)
        yield connection
    finally:
        connection.close()


def interim_answer(connection: http.client.HTTPConnection) -> bytes:
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        more = connection.sock.recv(1)
        assert more, received
        received += more
    return received


def answer(connection: http.client.HTTPConnection) -> tuple[int, dict[str, Any]]:
    with connection.getresponse() as response:
        return response.status, json.loads(response.read())


def upload(client: Client, content: bytes) -> httpx2.Response:
    return client.post(PATH, content=content, timeout=60)


def assert_full(response: httpx2.Response, detail: str) -> None:
    assert refusal(response, 429) == detail
    assert int(response.headers["retry-after"]) >= 1


@pytest.fixture
def small(start_service: StartService) -> Service:
    """A service that takes four uploads at a time."""
    return start_service(finetunes=FinetuneSettings(max_parallel=4))


SAME_PROJECT = "This project uploads a tuned model already; try again when that has ended"
SAME_ORGANIZATION = "This organization uploads 2 tuned models already, as many as it may at a time; try again shortly"


def test_a_project_has_one_upload_at_a_time_and_keeps_nobody_out(client: Client, service: Service) -> None:
    trickler = client
    with service.client(organization=service.worker.new_organization(credits=1)) as other:
        with upload_under_way(trickler, service):
            assert_full(upload(trickler, TRICKLED), SAME_PROJECT)
            assert problems(upload(other, b"no tuned model")) == [(["body"], "finetune_invalid")]
        for _ in range(1000):
            if upload(trickler, TRICKLED).status_code == 422:
                return
        pytest.fail("the place of an upload that broke off was not free again")


def test_an_organization_has_half_of_the_uploads_at_a_time(small: Service) -> None:
    organization = small.worker.new_organization(credits=1)
    with ExitStack() as stack:
        tricklers = [stack.enter_context(small.client(organization=organization)) for _ in range(3)]
        for trickler in tricklers[:2]:
            stack.enter_context(upload_under_way(trickler, small))
        assert_full(upload(tricklers[2], TRICKLED), SAME_ORGANIZATION)
        stranger = stack.enter_context(small.client(organization=small.worker.new_organization(credits=1)))
        assert upload(stranger, b"no tuned model").status_code == 422


def test_an_upload_has_a_time_in_all(start_service: StartService) -> None:
    service = start_service(finetunes=FinetuneSettings(receive_s=0.5))
    with service.client() as client, service.unchanged(), upload_under_way(client, service) as connection:
        status, body = answer(connection)
        assert (status, body["code"]) == (408, "request_timeout")
        assert body["detail"] == (
            "The upload came too slowly: it must be whole within 0.5 s, and come at 64 KiB/s or more"
        )


def test_an_upload_that_its_client_breaks_off_is_no_failure(
    client: Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), service.unchanged():
        with upload_under_way(client, service):
            pass
        until(lambda: upload(client, b"no tuned model").status_code == 422)
    assert "unhandled error" not in caplog.text


def header(entries: dict[str, Any]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
HOSTILE: dict[str, tuple[bytes, str]] = {
    "long-header": (struct.pack("<Q", 100_000_000) + b"{}".ljust(100_000_000), "its header is longer than 8 MiB"),
    "many-tensors": (header({f"t{n}": EMPTY for n in range(20_001)}), "more than 20000 tensors"),
    "nested": (struct.pack("<Q", 5_000_000) + b'{"a":' * 1_000_000, "not a safetensors file"),
    "long-name": (header({f"transformer.{'x' * 1_000_000}.lora_A.weight": EMPTY}), "no linear layer xxx"),
}


@pytest.mark.parametrize(("content", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_clearly_and_leaves_nothing(
    client: Client, service: Service, content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with service.unchanged():
        response = upload(client, content)
    assert problems(response) == [(["body"], "finetune_invalid")]
    message = response.json()["detail"][0]["msg"]
    assert reason in message
    assert len(message) < 500
    # The process that checks makes torch's own cache, unless torch was imported before.
    assert [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")] == []
