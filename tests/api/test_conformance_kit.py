"""The conformance kit against the service without anybody who works behind it: all that needs no result."""

from __future__ import annotations

import pytest
from support.conformance import broken, judged, told
from support.http_service import Service

from serve_app.conformance.check import Verdict
from serve_app.conformance.run import Options, chosen
from serve_app.conformance.topics import TOPICS

pytestmark = pytest.mark.slow

UNSEEN = "that the task ends within 0 s"
"""What is expected of every task here, and never comes."""
RESULTS = {"results", "statuses", "webhooks"}
"""Topics that are about nothing else."""


@pytest.mark.parametrize("topic", [topic.name for topic in TOPICS if topic.name not in RESULTS])
def test_every_sentence_holds_that_can_be_seen_without_results(service: Service, topic: str) -> None:
    with service.client() as client:
        options = Options(base_url=service.base_url, key=client.secret, budget=10_000, task_s=0)
        outcomes = judged(chosen([topic]), options)
    found = [each for each in broken(outcomes) if each.reason != UNSEEN]
    assert not found, told(found)
    assert any(each.verdict is Verdict.HOLDS for each in outcomes)
