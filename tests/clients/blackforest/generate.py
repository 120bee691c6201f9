"""Makes images as an application does that uses the package `blackforest`, in an environment of its own.

Takes from standard input `{base_url, key, requests: {name: {model, inputs}}}`, and writes to standard output what came
of each.
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
with contextlib.redirect_stdout(sys.stderr):  # it tells of every poll
    client = BFLClient(payload["key"], payload["base_url"])
    results = {name: generate(client, **request) for name, request in payload["requests"].items()}
json.dump({"results": results, "user_agent": client.session.headers["User-Agent"]}, sys.stdout)
