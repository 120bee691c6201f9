"""Requests are counted by what the service chose to name, and to the beginning of their answers."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from support.virtual_backend import VirtualClock

from serve_app.api.metrics import RequestFigures
from serve_app.storage.tally import Tallied, Tally


class Kept(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float]] = []

    def observe(self, what: Tallied, name: str, seconds: float) -> None:
        assert what is Tallied.REQUESTS
        self.seen.append((name, seconds))


@pytest.fixture
def tally() -> Kept:
    return Kept()


@pytest.fixture
def client(tally: Kept) -> TestClient:
    app, clock = FastAPI(), VirtualClock()

    @app.get("/things/{thing}")
    async def thing(thing: str) -> str:
        clock.now += 0.25
        if thing == "bad":
            raise RuntimeError
        return thing

    app.add_middleware(RequestFigures, routes=app, tally=tally, clock=clock)
    return TestClient(app, raise_server_exceptions=False)


def test_paths_are_told_as_their_routes_name_them(client: TestClient, tally: Kept) -> None:
    for path in ("/things/1", "/things/2", "/elsewhere/3"):
        client.get(path)
    client.request("BREW", "/things/4")
    assert tally.seen == [
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 4xx unmatched", 0.0),
        ("other 4xx /things/{thing}", 0.0),
    ]


def test_what_breaks_is_an_error_of_the_services_own(client: TestClient, tally: Kept) -> None:
    assert client.get("/things/bad").status_code == 500
    assert tally.seen == [("GET 5xx /things/{thing}", 0.25)]
