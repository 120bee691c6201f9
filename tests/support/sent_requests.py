"""What a page really sends: read from its request, as the service got it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page, expect


@dataclass(frozen=True)
class Sent:
    id: str
    """Of the task that came of it."""
    body: dict[str, Any]


def sent_by(page: Page, endpoint: str) -> Sent:
    """Presses the button of the form; the service must accept what it sends."""
    with page.expect_response(lambda response: response.url.endswith(f"/v1/{endpoint}")) as answered:
        page.get_by_role("button", name="Make it").click()
    response = answered.value
    assert response.ok, response.text()
    expect(page.get_by_role("article").first).to_be_visible()
    body = response.request.post_data_json
    assert isinstance(body, dict)
    return Sent(response.json()["id"], body)
