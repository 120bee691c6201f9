"""The decorator that links a test to a sentence of the interface, and a pytest plugin that lists the sentences.

`make promises` prints the list by section, each sentence with its tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest


def promise(section: str, sentence: str) -> pytest.MarkDecorator:
    """Names the sentence of the interface that the test checks, word for word, and its section.

    Sections that begin with `Decided` settle points that the interface leaves open. The cells of a table's row are
    joined with colons.
    """
    return pytest.mark.promise(section, sentence)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--promises", action="store_true", help="list the sentences of the interface that are checked")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--promises"):
        config.option.collectonly = True


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("--promises"):
        print(*list_promises(session.items), sep="\n")


def list_promises(items: Iterable[pytest.Item]) -> Iterator[str]:
    """Yields the lines of the list, sorted by section and sentence. A parametrized test is listed once."""
    tests: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for item in items:
        for mark in item.iter_markers("promise"):
            section, sentence = mark.args
            tests[section, sentence].add(item.nodeid.partition("[")[0])
    current = ""
    for section, sentence in sorted(tests, key=_order):
        if section != current:
            yield f"\n{section}"
            current = section
        yield f"  {sentence}"
        yield from (f"    {name}" for name in sorted(tests[section, sentence]))


def _order(promise: tuple[str, str]) -> tuple[int, int, str, str]:
    """Sorts endpoints by number, then the other sections, then the decisions."""
    section, sentence = promise
    number, dot, _ = section.partition(". ")
    if dot and number.isdecimal():
        return 0, int(number), section, sentence
    return (2 if section.startswith("Decided") else 1), 0, section, sentence
