"""What of the hub one machine fetches."""

from __future__ import annotations

from deployments.contract.hub_files import TRANSFORMER_CONFIG, Kind
from serve_app.weights.fetching import needed
from serve_app.weights.wanted import Wanted

PIPELINE = Wanted("lane", "owner/name", "v1")
UPLOADS = Wanted("uploads for lane", "owner/name", "v1", Kind.CONFIGURATION)
OTHERS_UPLOADS = Wanted("uploads for other", "owner/name", "v2", Kind.CONFIGURATION)
BUNDLED = Wanted("small", "bundled/flux3")


def test_nothing_is_fetched_twice_and_nothing_that_lies_here() -> None:
    files = needed([PIPELINE, UPLOADS, Wanted("same", "owner/name", "v1"), BUNDLED])
    assert files == [PIPELINE.files()]


def test_who_only_checks_uploads_needs_the_configuration_alone() -> None:
    whole, part = needed([PIPELINE, OTHERS_UPLOADS])
    assert (whole.revision, part.revision, part.patterns) == ("v1", "v2", (TRANSFORMER_CONFIG,))
    assert [each.patterns for each in needed([UPLOADS])] == [(TRANSFORMER_CONFIG,)]
