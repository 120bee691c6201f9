"""A key or a name and a password: either by the Enter key."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from support.browser import DESK, Behind


def test_a_key_and_enter_sign_in(page: Page, behind: Behind) -> None:
    key = behind(lambda worker: worker.new_key("default"))
    page.set_viewport_size(DESK)
    page.goto("/sign-in")
    field = page.get_by_label("API key")
    expect(field).to_be_in_viewport()
    field.fill("gen_wrong")
    field.press("Enter")
    expect(page.get_by_text("Invalid API key.")).to_be_in_viewport()
    field.fill(key)
    field.press("Enter")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
