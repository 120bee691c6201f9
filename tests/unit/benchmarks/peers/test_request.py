from __future__ import annotations

from benchmarks.peers.request import PROMPT, Request, groups, in_turns


def of(width: int, steps: int, seed: int = 0) -> Request:
    return Request(PROMPT, width, width, steps, seed)


def test_requests_go_round_the_shapes_and_no_seed_comes_twice() -> None:
    requests = in_turns([(64, 64, 4), (128, 64, 8)], 5, seed=10)
    assert [one.shape for one in requests] == [(64, 64, 4), (128, 64, 8), (64, 64, 4), (128, 64, 8), (64, 64, 4)]
    assert [one.seed for one in requests] == [10, 11, 12, 13, 14]
    assert in_turns([(64, 64, 4), (128, 64, 8)], 5, seed=10) == requests


def test_only_requests_of_one_shape_share_a_group_and_each_is_in_one() -> None:
    requests = [of(64, 4), of(128, 4), of(64, 8), of(64, 4, seed=7), of(128, 4)]
    assert groups(requests) == [[0, 3], [1, 4], [2]]


def test_without_requests_there_are_no_groups() -> None:
    assert groups([]) == []
