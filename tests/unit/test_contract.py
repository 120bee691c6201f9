"""Jobs, events and settings pickled by another release, whose fields differ, and values of the contract."""

from __future__ import annotations

import math
import mimetypes
import pickle
from dataclasses import fields

import pytest
from support.jobs import make_job

from deployments.contract import job
from deployments.contract.counts import Buckets, sum_field
from deployments.contract.events import Done, Failed, Interrupted
from deployments.contract.job import UNKNOWN, GenerationJob, Output, media_type
from deployments.contract.model import ModelSpec, Quantization
from deployments.contract.request import LayoutRow, VideoParams


def test_older_job_has_defaults_for_new_fields() -> None:
    newer = make_job("one", remaining_s=12.5, steps=7)
    assert pickle.loads(pickle.dumps(newer)) == newer
    older = object.__new__(GenerationJob)
    older.__setstate__([getattr(newer, field.name) for field in fields(newer)][:4])
    assert older == make_job("one", steps=7)


def test_job_of_release_0_2_is_not_readable() -> None:
    older = object.__new__(GenerationJob)
    older.__setstate__(["one", 1, "a red circle", 64, 64, 4, 7, "png", "results/one/1", ("inputs/t/0.png",)])
    assert not older.is_readable
    assert {job.LayoutRow, job.VideoParams} == {LayoutRow, VideoParams}, "0.2 pickles them by the names of this module"
    assert make_job().is_readable


LAST = (Done(Output("key", "image/png", 64, 64, 1)), Failed("no"), Interrupted("no", blame=False))


@pytest.mark.parametrize("event", LAST, ids=lambda event: type(event).__name__)
def test_last_event_is_pickled_unchanged(event: Done | Failed | Interrupted) -> None:
    assert pickle.loads(pickle.dumps(event)) == event


def test_failure_of_release_0_2_is_readable() -> None:
    old = object.__new__(Failed)
    old.__setstate__(["no", 1.5])  # as pickle does, with the fields of that release
    assert (old.reason, old.device_s, old.moderated) == ("no", 1.5, False)


def test_older_spec_has_defaults_for_new_settings() -> None:
    spec = ModelSpec(checkpoint="owner/name", objects_url="memory:///", quantization=Quantization(method="int8"))
    for settings, name in ((spec, "config_from"), (spec.quantization, "files")):
        vars(settings).pop(name)
    read = pickle.loads(pickle.dumps(spec))
    assert read.is_generic
    assert read == ModelSpec(
        checkpoint="owner/name", objects_url="memory:///", quantization=Quantization(method="int8")
    )


SECONDS = Buckets((100, 250, 1000), per_unit=1000)


@pytest.mark.parametrize(
    ("ms", "field"), [(0, "a:100"), (100, "a:100"), (100.5, "a:250"), (1000, "a:1000"), (1001, "a:more")]
)
def test_value_is_counted_in_the_smallest_bucket_above_it(ms: float, field: str) -> None:
    assert SECONDS.field("a", ms) == field


def test_buckets_are_read_cumulatively() -> None:
    histogram = SECONDS.read("a", {"a:100": "2", "a:1000": 3.0, "a:more": "1", "a:sum": "4500.5", "b:100": "7"})
    assert histogram.buckets == ((0.1, 2), (0.25, 2), (1.0, 5), (math.inf, 6))
    assert (histogram.count, histogram.sum, histogram.mean) == (6, 4.5005, pytest.approx(0.75, rel=1e-2))
    assert Buckets((1, 2)).read("batch", {"batch:2": 4, "members": 8}, total="members").mean == 2
    assert SECONDS.read("a", {sum_field("a"): 0}).mean is None


def test_media_type_follows_the_suffix_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mimetypes, "guess_type", None)
    kinds = {"r/t/1/a.jpeg": "image/jpeg", "a.JPG": "image/jpeg", "a.png": "image/png", "video.mp4": "video/mp4"}
    for name, kind in {**kinds, "draft.safetensors": UNKNOWN, ".png": UNKNOWN}.items():
        assert media_type(name) == kind
