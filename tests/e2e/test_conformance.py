"""The conformance kit against a whole service: what only a task that is worked on can show."""

from __future__ import annotations

import pytest
from support.conformance import broken, judged, told
from support.local_service import LocalService

from serve_app.conformance.run import Options, chosen

TOPICS = ("submission", "polling", "results", "statuses", "webhooks", "money")
"""The others are judged without anybody who works behind the service: `test_conformance_kit`."""


@pytest.mark.slow
def test_every_sentence_holds_that_takes_results(service: LocalService) -> None:
    key = (service.folder / "data" / "key").read_text().strip()
    options = Options(base_url=service.base_url, key=key, budget=1000, receiver_host="127.0.0.1")
    outcomes = judged(chosen(TOPICS), options)
    assert not broken(outcomes), told(broken(outcomes))
