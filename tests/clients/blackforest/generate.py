"""Makes images with the package `blackforest`, in its own environment.

Reads `{base_url, key, requests: {name: {model, inputs}}}` from stdin and writes the results to stdout.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from blackforest import BFLClient
from blackforest.types.general.client_config import ClientConfig


def generate(client: BFLClient, model: str, inputs: dict[str, Any]) -> dict[str, Any]:
    waits = ClientConfig(sync=True, timeout=240, polling_interval=0.1, max_retries=2400)
    try:
        return {"result": client.generate(model, inputs, waits).result}
    except Exception as problem:
        return {"error": str(problem)}


payload = json.load(sys.stdin)
with contextlib.redirect_stdout(sys.stderr):  # the package prints every poll
    client = BFLClient(payload["key"], payload["base_url"])
    results = {name: generate(client, **request) for name, request in payload["requests"].items()}
json.dump({"results": results, "user_agent": client.session.headers["User-Agent"]}, sys.stdout)
