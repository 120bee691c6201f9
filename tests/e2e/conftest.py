"""Whole services: one for all tests that leave it whole, and one for each module that breaks it.

A start takes every processor for half a minute, so tests of whole services run one after the other, those in
`tests/chaos` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from forbidden_image import forbidden
from support.local_service import LocalService
from support.tiny_classifier import moderation

from deployments.moderation.known_images import fingerprint
from serve_app.cli.service import Client

TASK_SETTINGS: dict[str, Any] = {"lease_s": 3, "max_active": 200}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.whole_service)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalService]:
    """One service for all tests that leave it whole."""
    names = yaml.safe_load((repository / "configs" / "local.yaml").read_text())["models"]
    # A model starts as soon as it is asked for, and stays for the next test that asks.
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
    digest = fingerprint(forbidden())
    assert digest.is_reliable
    (folder / "known.txt").write_text(f"{digest.text} violence\n")
    images = [{"backend": "known-images", "checkpoint": str(folder / "known.txt")}]
    eraser = {"backend": "telea", "checkpoint": "", "steps": 1, "max_batch": 1}
    sharing = {model: {"text_encoder": "klein"} for model in ("flux2-pro-snapshot", "flux2-max")}
    service = LocalService(
        folder,
        repository,
        moderation=moderation(folder / "classifier") | {"images": images},
        tasks=TASK_SETTINGS,
        models={"eraser": eraser, **sharing},
        text_encoders={"klein": {"checkpoint": "bundled/flux2klein", "dtype": "float32"}},
    )
    with _running(service):
        yield service


@pytest.fixture
def breakable(_breakable: LocalService) -> LocalService:
    """A service whose processes may be killed, and that may be stopped; the next test finds it up again.

    It knows a forbidden image, its eraser brings back what is around a mask, exactly, and two models share text
    encoders.
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
