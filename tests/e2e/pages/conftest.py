"""Fixtures of pages: Debian's Chromium, and a service whose tasks the tests finish."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support import finetune_checks
from support.browser import CHROMIUM, WIDE, Behind
from support.http_service import Service, running

from serve_app.accounts.roles import Role
from serve_app.config.model_settings import ModelSettings
from serve_app.config.settings import AccountSettings, TaskSettings

expect.set_options(timeout=30_000)  # ms, for a busy machine


@pytest.fixture(scope="session")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a local operator. Leases outlive the tests, since no dispatcher would take a task again."""
    # All tests share a project and do not finish every task.
    tasks, accounts = TaskSettings(lease_s=3600, max_active=5000), AccountSettings(local_role=Role.OPERATOR)
    folder = tmp_path_factory.mktemp("pages")
    # Uploads of tuned models are checked against their base.
    models = {"flux3-klein": ModelSettings(checkpoint="bundled/flux3")}
    with running(folder, redis_url, repository, tasks=tasks, accounts=accounts, models=models) as service:
        yield service


@pytest.fixture(scope="session")
def browser(service: Service) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def behind(service: Service) -> Iterator[Behind]:
    """Runs functions of the worker in another thread: Playwright occupies the event loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda do: pool.submit(do, service.worker).result()


@pytest.fixture(autouse=True)
def _check_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    finetune_checks.check_in_process(monkeypatch)


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    """A window of a new browser context. Script errors and violations of the content policy fail the test."""
    context = browser.new_context(base_url=service.base_url, viewport=WIDE, reduced_motion="reduce")
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda problem: wrong.append(str(problem)))
    page.on(
        "console", lambda message: wrong.append(message.text) if "Content Security Policy" in message.text else None
    )
    yield page
    context.close()
    assert wrong == []
