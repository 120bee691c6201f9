"""Another Serve application on the same cluster, of somebody else: deployed first, and asked all the time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2

_DEPLOYED_WITHIN_S: Final = 300.0
_EVERY_S: Final = 0.2
_DEPLOY: Final = """
import sys

import ray
from ray import serve
from ray.serve.config import HTTPOptions

@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})
class Theirs:
    def __call__(self, request):
        return "theirs"

ray.init(address=sys.argv[1], namespace="serve", log_to_driver=False)
serve.start(http_options=HTTPOptions(host="0.0.0.0", port=int(sys.argv[2])))
serve.run(Theirs.bind(), name="theirs", route_prefix="/theirs")
"""


PATH: Final = "/theirs"


class Neighbour:
    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url}{PATH}"
        self.asked = 0
        self.failed: list[str] = []
        """What it answered instead, when somebody watched."""

    def deploy(self, address: str, port: int, environment: Mapping[str, str], folder: Path) -> None:
        """On the cluster at that address. Starts Serve, which then listens on that port.

        All replicas, of whichever application, look for modules in `folder` first.
        """
        command = [sys.executable, "-c", _DEPLOY, address, str(port)]
        environment = os.environ | environment
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_DEPLOYED_WITHIN_S
        )
        if ran.returncode != 0:
            raise RuntimeError(f"the other application was not deployed:\n{ran.stderr[-3000:]}")

    @contextmanager
    def watched(self, during: str) -> Iterator[None]:
        """Within it, it is asked again and again. What fails is noted as failed `during` that."""
        over = threading.Event()
        asking = threading.Thread(target=self._ask, args=(during, over))
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()

    def _ask(self, during: str, over: threading.Event) -> None:
        began = time.monotonic()
        with httpx2.Client(trust_env=False, timeout=60) as http:
            while not over.wait(_EVERY_S):
                self.asked += 1
                try:
                    answer = http.get(self._url)
                except httpx2.HTTPError as problem:
                    self.failed.append(f"{during}: {type(problem).__name__}")
                    continue
                if (answer.status_code, answer.text) != (200, "theirs"):
                    self.failed.append(
                        f"{during}, {time.monotonic() - began:.1f} s: HTTP {answer.status_code}: {answer.text[:100]}"
                    )
