from __future__ import annotations

import pytest

from benchmarks.store_side import is_quiet, organization_of

QUIET: dict[str, int] = dict.fromkeys(
    ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress", "loading"), 0
)


def test_a_server_without_children_and_growing_tables_is_quiet() -> None:
    assert is_quiet(QUIET, {"mem_overhead_db_hashtable_rehashing": 0})


@pytest.mark.parametrize("what", QUIET)
def test_a_server_that_writes_its_data_is_not_quiet(what: str) -> None:
    assert not is_quiet(QUIET | {what: 1}, {"mem_overhead_db_hashtable_rehashing": 0})


def test_a_server_whose_tables_grow_is_not_quiet() -> None:
    assert not is_quiet(QUIET, {"mem_overhead_db_hashtable_rehashing": 2048})


def test_a_hundred_projects_are_of_one_organization() -> None:
    assert {organization_of(f"project-{n}") for n in range(100, 200)} == {"organization-0001"}
    assert organization_of("project-200") == "organization-0002"
