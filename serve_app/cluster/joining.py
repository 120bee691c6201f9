"""Joins a Ray cluster that others run. Import it once the switches are set: Ray reads them when it is imported."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import ray
from ray.exceptions import AuthenticationError

_ANSWERS_WITHIN_S: Final = 5.0


class NotJoined(RuntimeError):
    """Ray gave up on reaching the cluster."""


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Within it this process is a driver of the cluster. Raises NotJoined, or ValueError for another token."""
    _knock(address)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    try:
        # Serve's own namespace: its controller is looked for there.
        ray.init(address=address, namespace="serve", log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError:
        raise ValueError(
            "the Ray cluster at ray.address has another token than this process, or there is none here: set "
            "RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to the one its nodes have (docs/settings.md)"
        ) from None
    except Exception as problem:
        raise NotJoined(f"the Ray cluster at {address} is out of reach: {problem}") from problem
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Where nobody listens, Ray would go on trying for many minutes."""
    found = re.fullmatch(r"\[?([^\[\]/]+?)\]?:(\d+)", address)
    if found is None:  # `auto`, say: Ray finds out where that is
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=_ANSWERS_WITHIN_S).close()
    except OSError as problem:
        raise NotJoined(f"nobody listens at ray.address, {address}: {problem.strerror or problem}") from None
