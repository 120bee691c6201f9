"""The code's prose: docstrings are sentences, files that they name exist, and a class name means one class."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

PRODUCT: Final = ("serve_app", "deployments")
PACKAGES: Final = (*PRODUCT, "benchmarks", "tests")
_FRAGMENT: Final = re.compile(
    r"(Of|As|What|Who|Whom|Whose|Which|Where|Whether|How|That|None|Nothing|Nobody|So|Else|Least|Most|Such|Like|"
    r"The same|Here|There|By|From|Beside|Below|Above|With|Without|To|In|At|On|Only|Not|Also|May|Is|Are|Was)\b"
)
"""First words of phrases without a subject and of sentences that begin with an aside."""
_ODD: Final = re.compile(
    r"\b(what (it|is|was|came|has|they)|whoever|whichever|nobody|the like|as it were|may well)\b", re.I
)
_FILE: Final = re.compile(r"\b[\w/]+\.(?:py|lua|js)\b")


@cache
def files(*packages: str) -> list[Path]:
    return [Path(line) for line in subprocess.check_output(["git", "ls-files", *packages], text=True).splitlines()]


def statements(block: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yields the statements of a block and of the blocks in it."""
    for node in block:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, name, ()))


@cache
def parse(package: str) -> list[tuple[Path, ast.AST]]:
    paths = [path for path in files(package) if path.suffix == ".py"]
    return [(path, node) for path in paths for node in statements(ast.parse(path.read_text()).body)]


def docstrings(package: str) -> Iterator[tuple[str, str]]:
    """Yields the place and the text of each docstring, those of attributes included."""
    for path, node in parse(package):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield f"{path}:{node.lineno}", text


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_are_sentences(package: str) -> None:
    assert [place for place, text in docstrings(package) if _FRAGMENT.match(text)] == []
    assert [(place, found[0]) for place, text in docstrings(package) if (found := _ODD.search(text))] == []


def test_files_named_in_comments_exist() -> None:
    names = {path.name for path in files()}
    texts = [*(each for package in PACKAGES for each in docstrings(package)), *lua_comments()]
    stale = [(place, file) for place, text in texts for file in _FILE.findall(text) if Path(file).name not in names]
    assert stale == []


def lua_comments() -> Iterator[tuple[str, str]]:
    for path in (path for path in files(*PRODUCT) if path.suffix == ".lua"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "--" in line:
                yield f"{path}:{number}", line.partition("--")[2]


def test_class_names_are_unique() -> None:
    nodes = [node for package in PRODUCT for _, node in parse(package)]
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []
