"""What a first visit costs."""

from __future__ import annotations

from playwright.sync_api import Page, expect

MOST_BYTES = 200 * 1024
_LOADED = """() => performance.getEntriesByType("navigation")
  .concat(performance.getEntriesByType("resource"))
  .map((entry) => [entry.name, entry.transferSize])"""


def test_the_first_page_is_small(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("button", name="Make it")).to_be_enabled()
    loaded: list[tuple[str, int]] = page.evaluate(_LOADED)
    assert any(name.endswith("/openapi.json") for name, _ in loaded)
    assert sum(size for _, size in loaded) < MOST_BYTES, loaded


def test_nothing_comes_from_elsewhere(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    expect(page.get_by_role("button", name="Make it")).to_be_enabled()
    origin = page.evaluate("location.origin")
    assert [url for url in asked if not url.startswith(origin)] == []
