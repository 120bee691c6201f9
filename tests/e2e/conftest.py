"""Fixtures of the whole service that all tests share.

A start takes every processor for half a minute, so these tests run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import yaml
from support.local_service import LocalService

from deployments.moderation.known_images import fingerprint
from serve_app.cli.service import Client


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.whole_service)


@pytest.fixture(scope="session")
def forbidden_image() -> npt.NDArray[np.uint8]:
    """An image that the service's moderator rejects, with details on one side and none on the other."""
    image = np.full((256, 384, 3), 90, np.uint8)
    random = np.random.default_rng(4)
    for _ in range(40):
        corners = random.integers((0, 0), (120, 256), (2, 2))
        colour = tuple(int(level) for level in random.integers(0, 256, 3))
        cv2.rectangle(image, tuple(map(int, corners[0])), tuple(map(int, corners[1])), colour, -1)
    return image


@pytest.fixture(scope="session")
def _service(
    forbidden_image: npt.NDArray[np.uint8], tmp_path_factory: pytest.TempPathFactory, repository: Path
) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("service")
    digest = fingerprint(forbidden_image)
    assert digest.is_reliable
    (folder / "known.txt").write_text(f"{digest.text} violence\n")
    # A model starts at its first task and stays up for later tests.
    scaling = {"upscale_delay_s": 0, "downscale_delay_s": 600}
    names = yaml.safe_load((repository / "configs" / "local.yaml").read_text())["models"]
    models: dict[str, dict[str, Any]] = {name: {"autoscaling_config": scaling} for name in names}
    models["eraser"] |= {"backend": "telea", "checkpoint": "", "steps": 1, "max_batch": 1}  # exact outside the mask
    service = LocalService(
        folder,
        repository,
        moderation={"images": [{"backend": "known-images", "checkpoint": str(folder / "known.txt")}]},
        tasks={"lease_s": 3, "max_active": 200},
        models=models,
    )
    yield service
    service.close()


@pytest.fixture(scope="module")
def service(_service: LocalService) -> LocalService:
    """A running service. A test may kill a part of it; one that stops it starts it again."""
    if not _service.is_up:
        _service.start()
    return _service


@pytest.fixture
def client(service: LocalService) -> Iterator[Client]:
    with service.client() as client:
        yield client
