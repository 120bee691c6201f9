"""Which sentence of the interface a test checks, and a pytest plugin that lists all that are checked.

`make promises` prints the list: section by section, each sentence with the tests that hold the service to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest


def promise(section: str, sentence: str) -> pytest.MarkDecorator:
    """Names what the test checks: a sentence of the interface, word for word, and the section that it stands in.

    Sections that begin with `Decided` settle what the interface leaves open. A row of a table is told with colons
    between its cells.
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
    """Lines that tell every promise of `items`, sorted by section and sentence; a parametrised test counts once."""
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
    """Endpoints by their number, then the other sections, then what was decided."""
    section, sentence = promise
    number, dot, _ = section.partition(". ")
    if dot and number.isdecimal():
        return 0, int(number), section, sentence
    return (2 if section.startswith("Decided") else 1), 0, section, sentence
