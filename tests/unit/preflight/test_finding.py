"""How findings of several places become one line."""

from __future__ import annotations

from serve_app.preflight.finding import Finding, Verdict, fine, refused, together


def test_the_same_of_several_nodes_is_one_line() -> None:
    found = [
        fine("code", "node a", "the same"),
        refused("code", "node b", "another", "install it"),
        fine("code", "node c", "the same"),
    ]
    assert together(found) == [
        Finding("code", "2 places: node a, node c", Verdict.FINE, "the same"),
        Finding("code", "node b", Verdict.REFUSED, "another", "install it"),
    ]
