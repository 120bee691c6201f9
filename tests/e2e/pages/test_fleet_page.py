"""The fleet page: queues, windows and forecasts of every model."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect
from support.browser import Behind, around, submit_prompt
from support.worker import QUEUE

from serve_app.tasks.task import Status


def test_counts_of_a_queue_change_in_place(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a star for the fleet")
    page.goto("/fleet")
    queue = page.get_by_role("article", name=QUEUE, exact=True)
    queues = page.request.get("/v1/admin/fleet").json()["models"]
    before = next(each for each in queues if each["model"] == QUEUE)
    expect(queue).to_contain_text(f"{before['running']} running, {before['queued']} waiting")
    queue.evaluate("element => (element.dataset.same = 'yes')")
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.5))
    expect(queue).to_contain_text(f"{before['running'] + before['queued']} running, 0 waiting")
    # It is the same element, not a new one.
    expect(queue).to_have_attribute("data-same", "yes")
    expect(page.get_by_role("article")).to_have_count(len(queues))


def window(wait_s: float, failed: int = 0) -> dict[str, Any]:
    times = {"wait_p50": wait_s, "wait_p95": 2 * wait_s, "run_p50": 4.0, "run_p95": 5.0}
    return times | {"per_minute": 2.5, "failed": failed, "error_rate": failed / (8 + failed), "busy": 0.9}


def model(name: str, queued: int, queued_s: float | None) -> dict[str, Any]:
    entry = {"model": name, "queued": queued, "quarantined": 0, "running": 1, "batch": 4, "step_s": 0.125}
    entry |= {"queued_s": queued_s, "predicted_wait_s": queued_s, "cold_start_s": 12.0}
    entry |= {"replicas": {"RUNNING": 2, "STARTING": 1}, "target_replicas": 3, "min_replicas": 1, "max_replicas": 4}
    entry["windows"] = {"5m": window(1.5), "1h": window(30.0, failed=8), "24h": window(3.0, failed=1)}
    entry["history"] = [{"ready": minute % 8, "wait_p95": None if minute < 30 else minute / 10} for minute in range(60)]
    entry["what_if"] = [
        {"replicas": 1, "busy": 1.8, "wait_s": None, "drain_s": None},
        {"replicas": 2, "busy": 0.9, "wait_s": 9.0, "drain_s": 600.0},
        {"replicas": 3, "busy": 0.6, "wait_s": 1.2, "drain_s": 90.0},
    ]
    entry["failures"] = [{"task": "1", "endpoint": "gen-2-max", "at": 1.7e9, "error": "out of memory"}]
    return entry


def show_fleet(page: Page, *models: dict[str, Any], grafana_url: str | None = None) -> None:
    fleet = {"models": models, "store_bytes": 2**20, "store_limit_bytes": 2**22, "grafana_url": grafana_url}
    page.route("**/v1/admin/fleet", lambda route: route.fulfill(json=fleet))
    page.goto("/fleet")


def test_window_holds_for_all_models_and_after_a_reload(page: Page) -> None:
    show_fleet(page, model("long", 60, 240.0), model("short", 15, 60.0), grafana_url="https://grafana.test/d/fleet")
    cards = [page.get_by_role("article", name=name) for name in ("long", "short")]
    for card in cards:
        for words in (
            "1.5 s / 3.0 s",
            "90 %",
            "(1\N{EN DASH}4)",
            "12 s",
            "with 3: busy 60 %, wait 1.2 s, queue done in 90 s",
        ):
            expect(card).to_contain_text(words)
        expect(card).to_contain_text("With 1 replica: busy 180 %, overloaded;")
        expect(card.get_by_role("img", name="Ready per minute, last hour: peak 7")).to_be_visible()
        expect(card.get_by_role("img", name="Queue wait p95, last hour: peak 5.9 s")).to_be_visible()
    expect(page.get_by_role("link", name="Grafana")).to_have_attribute("href", "https://grafana.test/d/fleet")
    button = page.get_by_role("group", name="Window").get_by_role("button", name="1 h", exact=True)
    button.click()
    for _ in range(2):
        for card in cards:
            expect(card).to_contain_text("30 s / 60 s")
            expect(card).to_contain_text("50 % (8 failed)")
        expect(button).to_have_attribute("aria-pressed", "true")
        page.reload()


def test_bar_is_as_long_as_its_queued_work(page: Page) -> None:
    show_fleet(page, model("long", 60, 240.0), model("short", 15, 60.0), model("new", 3, None))
    bars = [page.get_by_role("meter", name=f"Work that waits in {name}").locator("div") for name in ("long", "short")]
    long, small = (around(bar)["width"] for bar in bars)
    assert round(long / small) == 4
    expect(page.get_by_text("A full bar is 4 min of work.")).to_be_visible()
    short = page.get_by_role("article", name="short")
    short.get_by_text("Last errors").click()
    for words in ("60 s of work", "2 running, 1 starting, target 3", "4, 125 ms a step", "out of memory (gen-2-max)"):
        expect(short).to_contain_text(words)
    expect(page.get_by_role("article", name="new")).to_contain_text("Duration not known yet")
    expect(page.get_by_role("region", name="In all")).to_contain_text("1.0 MiB")
    page.unroute("**/v1/admin/fleet")
    page.route("**/v1/admin/fleet", lambda route: route.abort())
    expect(page.get_by_role("status").filter(has_text="trying again")).to_be_visible()
    expect(short).to_contain_text("60 s of work")
