"""The dashboard's static files.

Everything they do, they do over the same interface as all clients, with the cookie of a session.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response

STATIC: Final = Path(__file__).with_name("static")
PATH: Final = "/pages"
"""Where their scripts and styles are."""
PAGES: Final = {
    "/": "playground.html",
    "/gallery": "gallery.html",
    "/account": "account.html",
    "/fleet": "fleet.html",
    "/sign-in": "sign_in.html",
    "/invitation": "invitation.html",
    "/consent": "consent.html",
}

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # Results may be in an object store of another origin, by signed links.
        "img-src 'self' data: blob: https:",
        "media-src 'self' blob: https:",
        "connect-src 'self' https:",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # They change with the service: browsers ask whether they did, and have them anew only then.
    "Cache-Control": "no-cache",
}


class _Static(StaticFiles):
    def file_response(self, *args: object, **options: object) -> Response:
        response = super().file_response(*args, **options)  # pyright: ignore[reportArgumentType]
        response.headers.update(HEADERS)
        return response


def add_pages(app: FastAPI) -> None:
    router = APIRouter(include_in_schema=False)
    for path, name in PAGES.items():
        router.add_api_route(path, _page(STATIC / name), methods=["GET"])
    app.include_router(router)
    app.mount(PATH, _Static(directory=STATIC), name="pages")


def _page(file: Path):
    async def page() -> FileResponse:
        return FileResponse(file, media_type="text/html; charset=utf-8", headers=HEADERS)

    return page
