"""Fleet, metrics and pages of a whole service."""

from __future__ import annotations

import time

import httpx2
import pytest
from playwright.sync_api import expect, sync_playwright
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from support.browser import CHROMIUM, EXAMPLE
from support.local_service import LocalService
from support.redis_process import until

from serve_app.cli.service import Client
from serve_app.metrics.series import ALL, REFUSED

QUEUE = "flux3-klein"
_REPORTED_S = 2.5
"""Maximum delay of counters: replicas and dispatchers each report once a second."""


def read_samples(service: LocalService) -> list[Sample]:
    text = httpx2.get(f"http://127.0.0.1:{service.metrics_port}/metrics", trust_env=False, timeout=60).text
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_replicas_report_to_fleet_and_metrics(service: LocalService, client: Client) -> None:
    def value(name: str, **labels: str) -> float:
        expected_labels = {"model": QUEUE, **labels}.items()
        return sum(
            each.value for each in read_samples(service) if each.name == name and expected_labels <= each.labels.items()
        )

    prompt = "a small purple star on a yellow background"
    client.generate("gen-3-image-klein", prompt=prompt)
    time.sleep(_REPORTED_S)
    with Client(service.base_url, service.operator_key) as operator:
        fleet = operator.admin("GET", "fleet")
    (match,) = [queue for queue in fleet["models"] if queue["model"] == QUEUE]
    assert min(match["replicas"]["RUNNING"], match["batch"], match["target_replicas"]) >= 1
    assert match["step_s"] > 0
    assert match["windows"]["1h"]["busy"] > 0
    assert match["what_if"][0]["replicas"] == 1
    assert match["cold_start_s"] > 0

    steps = value("gen_model_steps_total")
    hits = value("gen_model_cache_lookups_total", cache="prompts", found="yes")
    client.generate("gen-3-image-klein", prompt=prompt, steps=5)
    until(lambda: value("gen_model_steps_total") > steps)
    assert value("gen_model_steps_total") == steps + 5
    assert value("gen_model_cache_lookups_total", cache="prompts", found="yes") == hits + 1
    assert 0 < value("gen_model_call_seconds_total", call="steps") < value("gen_model_busy_seconds_total")
    assert value("gen_model_setup_info", dtype="float32", packed_attention="sdpa_loop") == 1
    # All declared series exist, except rejections, of which there are none here.
    declared = {name for series in ALL if series is not REFUSED for name in series.samples}
    until(lambda: not declared - {each.name for each in read_samples(service)})


def test_first_visit_makes_an_image_by_one_click(service: LocalService) -> None:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(base_url=service.base_url)
        page.goto("/")
        page.get_by_role("button", name=EXAMPLE).click()
        card = page.get_by_role("article").first
        expect(card.get_by_role("link", name="Download")).to_be_visible(timeout=120_000)
        expect(card.get_by_role("img")).not_to_have_js_property("naturalWidth", 0)
        page.goto("/fleet")
        expect(page.get_by_role("article", name=QUEUE)).to_contain_text("running", timeout=60_000)
        browser.close()
