"""Text encoders that two models share, in a process of their own."""

from __future__ import annotations

from typing import Any

import pytest
from support.local_service import LocalService
from support.outcomes import outcome

from serve_app.cli.service import Client

pytestmark = pytest.mark.slow

ENDPOINTS = ("gen-2-pro", "gen-2-max")


def made(client: Client, endpoint: str, prompt: str) -> dict[str, Any]:
    body = {"prompt": prompt, "width": 64, "height": 64, "seed": 3, "output_format": "png", "disable_pup": True}
    return outcome(client, client.submit(endpoint, body)["id"])


def test_models_make_their_pictures_and_outlive_a_kill_of_it(breakable: LocalService) -> None:
    with breakable.client() as client:
        pictures = [made(client, endpoint, "a red star on a white background") for endpoint in ENDPOINTS]
        assert [task["status"] for task in pictures] == ["Ready", "Ready"]
        first, second = (client.fetch(task["result"]["sample"]) for task in pictures)
        assert first == second, "one checkpoint, one seed"

        breakable.kill_one("TextEncoder-klein")
        after = made(client, ENDPOINTS[0], "a blue circle on a white background")
        assert after["status"] == "Ready", after
