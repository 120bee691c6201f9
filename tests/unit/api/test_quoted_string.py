from __future__ import annotations

import pytest

from serve_app.api.auth import quote_string


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("it has expired", '"it has expired"'),
        ("https://media.test/x", '"https://media.test/x"'),
        ('a", evil="b', r'"a\", evil=\"b"'),
        ("a\\b", r'"a\\b"'),
        ("two\r\nlines", '"two??lines"'),
        ("caf\xe9 \N{CAT FACE}", '"caf? ?"'),
    ],
)
def test_nothing_ends_a_quoted_string_early(text: str, quoted: str) -> None:
    assert quote_string(text) == quoted
