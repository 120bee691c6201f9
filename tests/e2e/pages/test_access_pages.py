"""Sign-in by a key, and access of programs by OAuth."""

from __future__ import annotations

import base64
import hashlib

import httpx2
from playwright.sync_api import Page, Route, expect
from support.browser import DESK, Behind
from support.http_service import Service

REDIRECT_URI = "http://127.0.0.1:7779/back"
VERIFIER = "a verifier that is long enough for everybody's taste"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


def test_key_signs_in_with_the_enter_key(page: Page, behind: Behind) -> None:
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


def register(service: Service) -> tuple[str, str]:
    """Registers a program. Returns its id and the path that it opens in the browser."""
    registration = {"redirect_uris": [REDIRECT_URI], "client_name": "Sketchpad", "token_endpoint_auth_method": "none"}
    answer = httpx2.post(f"{service.base_url}/oauth/register", json=registration, trust_env=False, timeout=60)
    client_id = answer.raise_for_status().json()["client_id"]
    query = {"response_type": "code", "client_id": client_id, "code_challenge": CHALLENGE, "state": "mine"}
    return client_id, f"/oauth/authorize?{httpx2.QueryParams(query)}"


def answer_consent(page: Page, path: str, button: str) -> httpx2.QueryParams:
    """Presses a button on the consent page. Returns the query that the program gets."""
    page.goto(path)
    expect(page.get_by_text("Sketchpad asks for access to the project default")).to_be_visible()
    page.get_by_role("button", name=button).click()
    page.wait_for_url(f"{REDIRECT_URI}*")
    return httpx2.URL(page.url).params


def test_program_gets_access_until_it_is_revoked(page: Page, service: Service) -> None:
    page.goto("/")  # signs in
    expect(page.get_by_role("button", name="Generate")).to_be_visible()
    page.route(f"{REDIRECT_URI}*", lambda route: route.fulfill(body="back in the program"))
    client_id, path = register(service)
    assert answer_consent(page, path, "Refuse")["error"] == "access_denied"
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


def test_consent_follows_sign_in_and_no_url_has_the_secret(page: Page, service: Service, behind: Behind) -> None:
    _, key = behind(lambda worker: worker.run(worker.keys.create("page")))
    signed_in: list[bool] = []

    def sign_out(route: Route) -> None:
        """Tells the page that it is not signed in, until it signs in."""
        if route.request.method == "POST":
            signed_in.append(True)
        if signed_in:
            return route.continue_()
        return route.fulfill(json=route.fetch().json() | {"signed_in": False, "local": False})

    page.route("**/v1/session", sign_out)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    with page.expect_response("**/oauth/authorize?*") as redirect:
        page.goto(register(service)[1])
    secret = redirect.value.headers["location"].partition("#")[2]
    page.wait_for_url("**/sign-in?*")
    page.locator("#key").fill(key)
    page.get_by_role("button", name="Sign in with the key").click()
    expect(page.get_by_text("Sketchpad asks for access to the project")).to_be_visible()
    assert secret
    assert not any(secret in address.partition("#")[0] for address in urls)
