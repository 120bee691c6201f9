"""Links between the documents lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(#(?P<anchor>[^)\s]*))?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, spaces to hyphens, no other signs."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(document: Path) -> Iterator[str]:
    for link in _LINK.finditer(_FENCE.sub("", document.read_text())):
        if "://" in link["path"]:
            continue
        target = document.parent / link["path"] if link["path"] else document
        anchor = link["anchor"] if target.suffix == ".md" else None
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{document.name}: {link[0]}"


def test_every_link_leads_somewhere(repository: Path) -> None:
    documents = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md")]
    assert len(documents) > 15
    assert [link for document in documents for link in broken(document)] == []
