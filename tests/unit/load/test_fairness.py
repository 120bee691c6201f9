from __future__ import annotations

import pytest
from support.outcomes_of_load import served, unserved

from serve_app.load.fairness import figures, jain
from serve_app.load.shape import Shape, Size


def test_jains_index_is_one_where_all_have_the_same_and_a_share_where_one_has_all() -> None:
    assert jain([2, 2, 2]) == 1
    assert jain([5, 0, 0, 0]) == 0.25
    assert jain([1, 3]) == pytest.approx(0.8)
    assert jain([0, 0]) is None


def test_work_is_counted_against_what_a_tenant_is_entitled_to() -> None:
    large = Shape(Size(1000, 1000), steps=4)
    run = [served(0, 1, "a", large), served(0, 1, "b"), served(1, 1, "a"), unserved(1, "refused", "HTTP 429", "b")]
    even = figures(run, {"a": 3, "b": 1})
    assert (even["jain"], even["counted_in"]) == (1, "megapixel-steps")
    assert figures(run, {"a": 1, "b": 1})["jain"] == pytest.approx(8**2 / (2 * (36 + 4)))
    assert even["tenants"]["b"] | {"time_to_result": None, "queue_wait": None} == {
        "weight": 1,
        "asked": 2,
        "served": 1,
        "refused": 1,
        "amount": 2,
        "time_to_result": None,
        "queue_wait": None,
    }
    assert even["tenants"]["b"]["time_to_result"]["n"] == 1


def test_one_tenant_alone_has_no_index() -> None:
    assert figures([served(0, 1)], {"all": 1})["jain"] is None
