"""The dashboard: static pages.

They use the same API as all clients, with a session cookie. The URLs of their files have a version, so browsers cache
them until the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response
from starlette.types import Scope

from serve_app.config.replicas import installed_release

STATIC: Final = Path(__file__).with_name("static")
PATH: Final = "/pages"
"""Path of scripts and styles."""
PAGES: Final = {
    "/": "playground.html",
    "/gallery": "gallery.html",
    "/t/{task_id}": "task.html",
    "/account": "account.html",
    "/fleet": "fleet.html",
    "/sign-in": "sign_in.html",
    "/invitation": "invitation.html",
    "/consent": "consent.html",
}


def policy(style_src: str = "'self'") -> str:
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            f"style-src {style_src}",
            # Signed links to results may lead to an object store of another origin.
            "img-src 'self' data: blob: https:",
            "media-src 'self' blob: https:",
            "connect-src 'self' https:",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


HEADERS: Final = {
    "Content-Security-Policy": policy(),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Browsers revalidate them.
    "Cache-Control": "no-cache",
}
_FILES: Final = sorted(file for file in STATIC.rglob("*") if file.is_file())
_VERSION: Final = sha256(b"".join(file.read_bytes() for file in _FILES)).hexdigest()[:12]
_ANY_VERSION: Final = re.compile(r"^[0-9a-f]{12}/")
_HEAD: Final = """<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/pages/icon.svg" type="image/svg+xml">
<script src="/pages/theme.js"></script>"""
_HEADER: Final = """<header class="top"><a class="skip" href="#main">To the content</a>
<div class="row apart"><nav class="row" aria-label="Pages"><strong>gen-serve</strong><a href="/">Playground</a>
<a href="/gallery">Gallery</a><a href="/guide/quickstart">Docs</a><a href="/account" hidden>Account</a>
<a href="/fleet" hidden>Fleet</a></nav></div></header>"""
"""The header before sign-in; a script then shows the entries that the person may use."""
_FOOTER: Final = f"""<footer class="bottom row faint">
<span>gen-serve {installed_release()}</span><a href="/guide/quickstart">Docs</a><a href="/docs">API reference</a>
</footer>"""
_ENTRY, _IMPORT = re.compile(r'<script type="module" src="/pages/([^"]+)">'), re.compile(r'from "\./([^"]+)"')


class _Static(StaticFiles):
    """Serves the current files for every version: during an upgrade, a page may be older or newer than its files."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(_ANY_VERSION.sub("", path, count=1), scope)
        response.headers.update(HEADERS)
        if path.startswith(_VERSION):
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def add_pages(app: FastAPI) -> None:
    router = APIRouter(include_in_schema=False)
    for path, name in PAGES.items():
        router.add_api_route(path, _page(name), methods=["GET"])
    app.include_router(router)
    app.mount(PATH, _Static(directory=STATIC), name="pages")


def _page(name: str):
    content = read_page(name)

    async def page() -> HTMLResponse:
        return HTMLResponse(content, headers=HEADERS)

    return page


def read_page(name: str) -> str:
    """Reads a page, and adds its head, header, footer, versions of files, and preloads of all its scripts."""
    text = (STATIC / name).read_text()
    scripts = [script for entry in _ENTRY.findall(text) for script in _imports(entry)]
    preloads = "".join(f'<link rel="modulepreload" href="/pages/{script}">\n' for script in scripts)
    text = text.replace("<head>", _HEAD).replace("</head>", f"{preloads}</head>").replace("<!-- header -->", _HEADER)
    text = text.replace("</body>", f"{_FOOTER}\n</body>")
    return text.replace('"/pages/', f'"/pages/{_VERSION}/')


def _imports(script: str) -> Iterator[str]:
    """Yields each direct and indirect import of a script once."""
    seen, pending = {script}, [script]
    while pending:
        for name in _IMPORT.findall((STATIC / pending.pop()).read_text()):
            if name not in seen:
                seen.add(name)
                pending.append(name)
                yield name


_MESSAGE: Final = Template(read_page("message.html"))


def not_found_page(suggestion: str) -> HTMLResponse:
    return message_page("Page not found", f"There is nothing at this address{suggestion}.", 404)


def message_page(title: str, text: str, status: int) -> HTMLResponse:
    return HTMLResponse(_MESSAGE.substitute(title=escape(title), text=escape(text)), status, headers=HEADERS)
