"""Joins a Ray cluster that others run. Import it once the switches are set: Ray reads them when it is imported."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.exceptions import AuthenticationError


class NotJoined(RuntimeError):
    """Ray gave up on reaching the cluster."""


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Within it this process is a driver of the cluster. Raises NotJoined, or ValueError for another token."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    try:
        # Serve's own namespace: its controller is looked for there.
        ray.init(address=address, namespace="serve", log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError:
        raise ValueError(
            "the Ray cluster at ray.address has another token than this process, or there is none here: set "
            "RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to the one its nodes have (docs/operations.md)"
        ) from None
    except Exception as problem:
        raise NotJoined(f"the Ray cluster at {address} is out of reach: {problem}") from problem
    try:
        yield
    finally:
        ray.shutdown()
