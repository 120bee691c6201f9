"""A program asks for access in a browser, and is shut out on the account page."""

from __future__ import annotations

import base64
import hashlib

import httpx2
from playwright.sync_api import Page, Route, expect
from support.browser import Behind
from support.http_service import Service

BACK = "http://127.0.0.1:7779/back"
VERIFIER = "a verifier that is long enough for everybody's taste"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


def asks(service: Service) -> tuple[str, str]:
    """A program's id, and the path that it opens in the browser."""
    registration = {"redirect_uris": [BACK], "client_name": "Sketchpad", "token_endpoint_auth_method": "none"}
    answer = httpx2.post(f"{service.base_url}/oauth/register", json=registration, trust_env=False, timeout=60)
    client_id = answer.raise_for_status().json()["client_id"]
    query = {"response_type": "code", "client_id": client_id, "code_challenge": CHALLENGE, "state": "mine"}
    return client_id, f"/oauth/authorize?{httpx2.QueryParams(query)}"


def answer_consent(page: Page, path: str, button: str) -> httpx2.QueryParams:
    """What the program is told by whoever sits here."""
    page.goto("/")  # signed in
    expect(page.get_by_role("button", name="Generate")).to_be_visible()
    page.route(f"{BACK}*", lambda route: route.fulfill(body="back in the program"))
    page.goto(path)
    expect(page.get_by_text("Sketchpad asks for access to the project default")).to_be_visible()
    page.get_by_role("button", name=button).click()
    page.wait_for_url(f"{BACK}*")
    return httpx2.URL(page.url).params


def test_it_is_let_in_and_shut_out(page: Page, service: Service) -> None:
    client_id, path = asks(service)
    query = answer_consent(page, path, "Allow")
    assert (query["state"], query["iss"]) == ("mine", service.base_url)
    form = {"grant_type": "authorization_code", "code": query["code"], "code_verifier": VERIFIER}
    with httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60) as http:
        tokens = http.post("/oauth/token", data={**form, "client_id": client_id}).raise_for_status().json()
        headers = {"authorization": f"Bearer {tokens['access_token']}"}
        assert http.get("/v1/credits", headers=headers).status_code == 200
    page.goto("/account")
    programs = page.get_by_role("region", name="OAuth clients")
    page.once("dialog", lambda dialog: dialog.accept())
    programs.get_by_role("row", name="Sketchpad").get_by_role("button", name="Revoke").click()
    expect(programs.get_by_role("row", name="Sketchpad")).to_have_count(0)


def test_a_refusal_goes_back_to_it(page: Page, service: Service) -> None:
    assert answer_consent(page, asks(service)[1], "Refuse")["error"] == "access_denied"


def test_who_has_to_sign_in_first_is_asked_afterwards_and_no_address_has_the_secret(
    page: Page, service: Service, behind: Behind
) -> None:
    _, key = behind(lambda worker: worker.run(worker.keys.create("page")))
    signed_in: list[bool] = []

    def as_a_stranger(route: Route) -> None:
        if route.request.method == "POST":
            signed_in.append(True)
        if signed_in:
            return route.continue_()
        return route.fulfill(json=route.fetch().json() | {"signed_in": False, "local": False})

    page.route("**/v1/session", as_a_stranger)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    with page.expect_response("**/oauth/authorize?*") as led:
        page.goto(asks(service)[1])
    secret = led.value.headers["location"].partition("#")[2]
    page.wait_for_url("**/sign-in?*")
    page.locator("#key").fill(key)
    page.get_by_role("button", name="Sign in with the key").click()
    expect(page.get_by_text("Sketchpad asks for access to the project")).to_be_visible()
    assert secret
    assert not any(secret in address.partition("#")[0] for address in urls)
