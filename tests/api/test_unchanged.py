"""Many tests rely on `Service.unchanged`, so it must see what they would miss."""

from __future__ import annotations

import pytest
from support.http_client import ENDPOINT, Client
from support.http_service import Service


def test_a_task_is_a_change(service: Service, client: Client) -> None:
    with pytest.raises(AssertionError, match="task:"), service.assert_unchanged():
        assert client.post(ENDPOINT, json={"prompt": "a cat"}).status_code == 200


def test_a_stored_object_is_a_change(service: Service) -> None:
    with pytest.raises(AssertionError, match="results/unchanged"), service.assert_unchanged():
        service.worker.run(service.worker.objects.put("results/unchanged", b"x", "image/png"))
    service.worker.run(service.worker.objects.delete(["results/unchanged"]))


def test_reading_is_no_change(service: Service, client: Client) -> None:
    with service.assert_unchanged():
        assert client.get("/v1/tasks").status_code == 200
