"""Books that are archived by hand are listed as before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.command_line import GenServe


@pytest.fixture
def grants(gen_serve: GenServe, acme: str) -> int:
    """Entries in the ledger of `acme`, of which two at least stay in Redis."""
    gen_serve.monkeypatch.setenv("GEN_ACCOUNTS__JOURNAL_ENTRIES", "2")
    for n in range(5):
        assert gen_serve("credits", "grant", str(n), "--organization", acme).code == 0
    return 6


def test_what_is_archived_is_listed_as_before(gen_serve: GenServe, acme: str, grants: int) -> None:
    for n in range(4):
        assert gen_serve("organizations", "approve", acme, "gen-2-max", str(n)).code == 0
    lists = (("credits", "ledger", "--organization", acme), ("organizations", "audit", acme))
    before = [gen_serve(*words).table for words in lists]
    assert len(before[0]) == grants
    # Two of the ledger, and of the audit log as many.
    assert gen_serve("credits", "archive").out == "archived 4 segments\n"
    assert gen_serve("credits", "archive").out == "archived 0 segments\n"
    assert [gen_serve(*words).table for words in lists] == before


def test_what_is_out_of_reach_is_no_end_of_the_list(
    gen_serve: GenServe, acme: str, grants: int, tmp_path: Path
) -> None:
    assert gen_serve("credits", "archive").code == 0
    shutil.rmtree(tmp_path / "data" / "objects" / "archive")
    listed = gen_serve("credits", "ledger", "--organization", acme)
    assert (listed.code, listed.out) == (1, "")
    assert listed.err.startswith(f"error: older entries are out of reach in the object store: archive/ledger/{acme}/")
    assert len(gen_serve("credits", "ledger", "--organization", acme, "--limit", "1").table) == 1
