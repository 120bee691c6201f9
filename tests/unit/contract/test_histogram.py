from __future__ import annotations

import math

import pytest

from deployments.contract.counts import Buckets, sum_field

SECONDS = Buckets((100, 250, 1000), per_unit=1000)


@pytest.mark.parametrize(
    ("ms", "field"), [(0, "a:100"), (100, "a:100"), (100.5, "a:250"), (1000, "a:1000"), (1001, "a:more")]
)
def test_a_value_lies_in_the_first_bucket_that_holds_it(ms: float, field: str) -> None:
    assert SECONDS.field("a", ms) == field


def test_buckets_are_told_with_all_below_them() -> None:
    found = SECONDS.read("a", {"a:100": "2", "a:1000": 3.0, "a:more": "1", "a:sum": "4500.5", "b:100": "7"})
    assert found.buckets == ((0.1, 2), (0.25, 2), (1.0, 5), (math.inf, 6))
    assert (found.count, found.sum, found.mean) == (6, 4.5005, pytest.approx(0.75, rel=1e-2))


def test_a_sum_may_have_a_name_of_its_own() -> None:
    assert Buckets((1, 2)).read("batch", {"batch:2": 4, "members": 8}, total="members").mean == 2


def test_of_nothing_there_is_no_mean() -> None:
    assert SECONDS.read("a", {sum_field("a"): 0}).mean is None
