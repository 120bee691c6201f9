"""The guide: the documents of `docs/` as pages of the service."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from markdown_it import MarkdownIt

from serve_app.api.openapi import PUBLIC
from serve_app.api.pages import HEADERS, not_found_page, read_page

DOCUMENTS: Final = Path(__file__).with_name("documents")
PATH: Final = "/guide"
CHAPTERS: Final = {
    "Use": ("quickstart", "dashboard", "cli"),
    "Build": ("api", "webhooks", "clients"),
    "Operate": (
        "operations",
        "settings",
        "tuning",
        "models",
        "workflows",
        "metrics",
        "accounts",
        "moderation",
        "security",
    ),
    "Evaluate": ("architecture", "durability", "benchmarks"),
}
_NAMES: Final = frozenset(name for names in CHAPTERS.values() for name in names)
_CURRENT: Final = ' aria-current="page"'
_IMAGES: Final = ("images", "pages")
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")
_COMMENT: Final = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_PAGE: Final = Template(read_page("guide.html"))
_REPLACEMENTS: Final = {
    "<table>": '<div class="scroll" tabindex="0"><table>',
    "</table>": "</table></div>",
    "<pre>": '<pre tabindex="0">',
    "<img ": '<img loading="lazy" ',
    'style="text-align:right"': 'class="right"',
}
"""Changes for keyboard users, and for the content security policy, which forbids inline styles."""
_DOCUMENT: Final = re.compile(r"^([a-z]+)\.md(#.*)?$")


def add_guide(app: FastAPI) -> None:
    router = APIRouter(include_in_schema=False)

    @router.get(PATH)
    async def guide() -> RedirectResponse:
        return RedirectResponse(f"{PATH}/quickstart")

    @router.get(f"{PATH}/{{name}}")
    def document(name: str) -> HTMLResponse:
        # A thread, since the first rendering of a document takes up to 30 ms.
        return HTMLResponse(_render(name), headers=HEADERS) if name in _NAMES else not_found_page("")

    app.include_router(router)
    for folder in _IMAGES:
        app.mount(f"{PATH}/{folder}", StaticFiles(directory=DOCUMENTS / folder))


@cache
def _render(name: str) -> str:
    tokens = _MARKDOWN.parse(_COMMENT.sub("", (DOCUMENTS / f"{name}.md").read_text()))
    for heading, text in pairwise(tokens):
        if heading.type == "heading_open":
            heading.attrSet("id", anchor(text.content))
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs = _link(str(child.attrs["href"]))
    content = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    for html, replacement in _REPLACEMENTS.items():
        content = content.replace(html, replacement)
    chapters = "".join(_list_chapter(chapter, names, name) for chapter, names in CHAPTERS.items())
    return _PAGE.substitute(title=escape(_title(name)), chapters=chapters, content=content)


@cache
def _title(name: str) -> str:
    with (DOCUMENTS / f"{name}.md").open() as file:
        return file.readline().removeprefix("# ").strip()


def anchor(heading: str) -> str:
    """Returns GitHub's anchor of a heading: lower case, hyphens for spaces, no other signs."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _link(href: str) -> dict[str, str | int | float]:
    """Returns the attributes of a link on this site; none for files of the repository."""
    if "://" in href or href.startswith("#"):
        return {"href": href}
    if href == "../openapi.json":
        return {"href": PUBLIC}
    found = _DOCUMENT.match(href)
    return {"href": f"{PATH}/{found[1]}{found[2] or ''}"} if found else {}


def _list_chapter(chapter: str, names: Sequence[str], current: str) -> str:
    items = "".join(
        f'<li><a href="{PATH}/{name}"{_CURRENT if name == current else ""}>{escape(_title(name))}</a></li>'
        for name in names
    )
    return f"<details{' open' if current in names else ''}><summary>{chapter}</summary><ul>{items}</ul></details>"
