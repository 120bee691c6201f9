from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from support.virtual_backend import VirtualClock

from serve_app.api.metrics import RequestMetrics
from serve_app.storage.tally import CounterBuffer, CounterName


class RecordingTally(CounterBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.timings: list[tuple[str, float]] = []

    def observe(self, counter: CounterName, label: str, seconds: float) -> None:
        assert counter is CounterName.REQUESTS
        self.timings.append((label, seconds))


@pytest.fixture
def tally() -> RecordingTally:
    return RecordingTally()


@pytest.fixture
def client(tally: RecordingTally) -> TestClient:
    app, clock = FastAPI(), VirtualClock()

    @app.get("/things/{thing}")
    async def thing(thing: str) -> str:
        clock.now += 0.25
        if thing == "bad":
            raise RuntimeError
        return thing

    app.add_middleware(RequestMetrics, routes=app, tally=tally, clock=clock)
    return TestClient(app, raise_server_exceptions=False)


def test_requests_are_counted_by_route_and_errors_as_5xx(client: TestClient, tally: RecordingTally) -> None:
    for path in ("/things/1", "/things/2", "/elsewhere/3", "/things/bad"):
        client.get(path)
    client.request("BREW", "/things/4")
    assert tally.timings == [
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 4xx unmatched", 0.0),
        ("GET 5xx /things/{thing}", 0.25),
        ("other 4xx /things/{thing}", 0.0),
    ]
