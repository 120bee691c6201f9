"""Fixtures of whole services: one for all tests, and one for tests that break or stop it.

A start takes every processor for half a minute, so these tests run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from forbidden_image import draw_forbidden_image
from support.local_service import LocalService
from support.tiny_classifier import moderation_settings

from deployments.moderation.known_images import fingerprint
from serve_app.cli.service import Client

TASK_SETTINGS: dict[str, Any] = {"lease_s": 3, "max_active": 200}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.whole_service)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalService]:
    """A service that tests must leave intact."""
    names = yaml.safe_load((repository / "configs" / "local.yaml").read_text())["models"]
    # A model starts at its first task and stays up for later tests.
    scaling = {"upscale_delay_s": 0, "downscale_delay_s": 600}
    models = {name: {"autoscaling_config": scaling} for name in names}
    with _running(
        LocalService(tmp_path_factory.mktemp("service"), repository, tasks=TASK_SETTINGS, models=models)
    ) as service:
        yield service


@pytest.fixture
def client(service: LocalService) -> Iterator[Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def _breakable(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("breakable")
    digest = fingerprint(draw_forbidden_image())
    assert digest.is_reliable
    (folder / "known.txt").write_text(f"{digest.text} violence\n")
    images = [{"backend": "known-images", "checkpoint": str(folder / "known.txt")}]
    eraser = {"backend": "telea", "checkpoint": "", "steps": 1, "max_batch": 1}
    sharing = {model: {"text_encoder": "klein"} for model in ("flux2-pro-snapshot", "flux2-max")}
    service = LocalService(
        folder,
        repository,
        moderation=moderation_settings(folder / "classifier") | {"images": images},
        tasks=TASK_SETTINGS,
        models={"eraser": eraser, **sharing},
        text_encoders={"klein": {"checkpoint": "bundled/flux2klein", "dtype": "float32"}},
    )
    with _running(service):
        yield service


@pytest.fixture
def breakable(_breakable: LocalService) -> LocalService:
    """A service that a test may break or stop; it is up again for the next test.

    It knows a forbidden image, its eraser is exact outside the mask, and two models share text encoders.
    """
    if not _breakable.is_up:
        _breakable.start()
    return _breakable


@contextmanager
def _running(service: LocalService) -> Iterator[LocalService]:
    try:
        service.start()
        yield service
    finally:
        service.close()
