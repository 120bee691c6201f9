from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.load import trace
from serve_app.load.mix import Mix, Tenant
from serve_app.load.plan import replayed
from serve_app.load.shape import Shape, Size
from serve_app.load.trace import Arrival

STILL = Shape(Size(512, 256), steps=4, references=1)
CLIP = Shape(seconds=5, tuned=True)
RECORDED = [
    Arrival.of(0.0, "gen-pro", 0, STILL),
    Arrival.of(2.5, "gen-3-video", 1, CLIP),
    Arrival.of(4, "gen-pro", 0, STILL),
]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    trace.write(tmp_path / "trace.jsonl", RECORDED)
    found = trace.read(tmp_path / "trace.jsonl")
    assert found == RECORDED
    assert [each.shape for each in found] == [STILL, CLIP, STILL]


def test_lines_in_any_order_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    trace.write(tmp_path / "trace.jsonl", reversed(RECORDED))
    assert trace.read(tmp_path / "trace.jsonl") == RECORDED


def test_a_replay_has_the_moments_shapes_and_tenants_and_prompts_of_its_own() -> None:
    requests = trace.requests(RECORDED, Mix(), speed=2, seed=1)
    assert [each.moment for each in requests] == [0, 1.25, 2]
    assert [each.tenant for each in requests] == ["tenant 0", "tenant 1", "tenant 0"]
    assert [each.shape for each in requests] == [STILL, CLIP, STILL]
    assert all(each.prompt for each in requests)
    assert requests == trace.requests(RECORDED, Mix(), speed=2, seed=1)
    assert requests != trace.requests(RECORDED, Mix(), speed=2, seed=2)


def test_tenants_of_a_mix_stand_in_for_those_that_were_recorded() -> None:
    mix = Mix(tenants=[Tenant(name="a", weight=2), Tenant(name="b")])
    assert [each.tenant for each in trace.requests(RECORDED, mix)] == ["a", "b", "a"]
    plan = replayed(RECORDED, mix, "trace.jsonl", "gen", speed=1, warm_up=1, seed=0)
    assert plan.weights == {"a": 2, "b": 1}
    # Three requests in six seconds: the last one has the mean gap, too.
    assert (plan.window.begin, plan.window.end, plan.settings.rate) == (1, 6, 0.5)


def test_in_what_a_replay_differs_is_told() -> None:
    assert trace.notes(RECORDED, Mix(), None) == [
        "2 tenants were recorded, and sent with 1 keys",
        "1 requests were for tuned models, and sent without",
    ]
    assert trace.notes(RECORDED, Mix(tenants=[Tenant(name="a"), Tenant(name="b")]), "ft_1") == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "line 1: Invalid JSON"),
        ('{"offset": -1, "endpoint": "a"}', "line 1: offset: Input should be greater than or equal to 0"),
        ('{"offset": 1}', "line 1: endpoint: Field required"),
        ('{"offset": 1, "endpoint": "a", "prompt": "b"}', "line 1: prompt: Extra inputs are not permitted"),
        ('{"offset": 1, "endpoint": "a?b"}', "line 1: endpoint: String should match"),
        ("", "holds no requests"),
    ],
)
def test_mistakes_are_named_by_line_and_field(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "trace.jsonl").write_text(line)
    with pytest.raises(ValueError, match=said):
        trace.read(tmp_path / "trace.jsonl")


def test_a_speed_or_warm_up_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="speed should be a number above 0"):
        trace.requests(RECORDED, Mix(), speed=0)
    with pytest.raises(ValueError, match="leaves nothing of a trace"):
        replayed(RECORDED, Mix(), "trace.jsonl", "gen", speed=1, warm_up=10, seed=0)
