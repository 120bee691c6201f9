"""Pictures by their address, where an organization names more of them than are fetched at a time."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.client import ENDPOINT, refusal
from support.http_service import Service, StartService
from support.pictures import picture
from support.website import Website

from serve_app.config.settings import NetworkSettings, ServiceSettings
from serve_app.inputs.fetch import FetchTurns
from serve_app.inputs.inputs import Inputs


@pytest.fixture
def slow(web: Website) -> list[str]:
    """Where two pictures are that take a while to come."""
    return [web.put(f"/{uuid.uuid4().hex}", picture(), delay_s=0.2) for _ in range(2)]


@contextmanager
def with_turns(service: Service, turns: FetchTurns) -> Iterator[None]:
    services = service.app.state.services
    inputs = Inputs(services.submission.guard, decoders=1, turns=turns)
    submission = dataclasses.replace(services.submission, inputs=inputs)
    service.app.state.services = dataclasses.replace(services, submission=submission)
    try:
        yield
    finally:
        inputs.close()


def test_those_beyond_wait_their_turn(start_service: StartService, slow: list[str]) -> None:
    service = start_service(network=NetworkSettings(fetches_per_organization=1, fetches_per_origin=1))
    with service.client() as client:
        client.accepted(images=slow)


def test_those_whose_turn_does_not_come_are_refused_for_now(start_service: StartService, slow: list[str]) -> None:
    service = start_service()
    with with_turns(service, FetchTurns(per_owner=1, patience_s=0.01)), service.client() as client:
        requests = {ENDPOINT: {"prompt": "x", "images": slow}}
        requests["/v1/pricing"] = {"path": ENDPOINT, "body": requests[ENDPOINT]}
        for path, body in requests.items():
            with service.unchanged():
                response = client.post(path, json=body)
            assert refusal(response, 429).startswith("Too many pictures and videos are being fetched")
            assert int(response.headers["retry-after"]) >= 1
        client.accepted(images=slow[:1])


def test_what_is_fetched_counts_among_the_large_bodies(start_service: StartService, web: Website) -> None:
    service = start_service(service=ServiceSettings(max_body_mb=1, max_inflight_mb=1))
    large = [web.put(f"/{uuid.uuid4().hex}", picture().ljust(400_000, b"\0")) for _ in range(3)]
    with service.client() as client:
        for _ in range(3):
            client.accepted(images=large[:2])
        with service.unchanged():
            response = client.submit(images=large)
            assert refusal(response, 503).startswith("Too many large requests at a time")
        assert response.headers["retry-after"]
        client.accepted(images=large[:2])
