"""The fleet at a glance."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect
from support.browser import Behind, around, asked_for
from support.worker import QUEUE

from serve_app.tasks.task import Status


def test_queues_show_what_waits_and_runs_in_their_places(page: Page, behind: Behind) -> None:
    task_id = asked_for(page, "a star for the fleet")
    page.goto("/fleet")
    queue = page.get_by_role("article", name=QUEUE, exact=True)
    told = page.request.get("/v1/admin/fleet").json()["models"]
    before = next(each for each in told if each["model"] == QUEUE)
    expect(queue).to_contain_text(f"{before['running']} running, {before['queued']} waiting")
    queue.evaluate("element => (element.dataset.same = 'yes')")
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.5))
    expect(queue).to_contain_text(f"{before['running'] + before['queued']} running, 0 waiting")
    # It is the same element: nothing was taken away and drawn again.
    expect(queue).to_have_attribute("data-same", "yes")
    expect(page.get_by_role("article")).to_have_count(len(told))


def test_bars_are_as_long_as_the_work_that_waits(page: Page) -> None:
    def queue(name: str, queued: int, queued_s: float | None) -> dict[str, Any]:
        known = {"tasks": 8, "mean": 4.0, "half": 5.0, "most": 150.0}
        times = known if queued_s is not None else dict.fromkeys(known) | {"tasks": 0}
        failures = [{"task": "1", "endpoint": "gen-2-max", "at": 1.7e9, "error": "out of memory"}]
        told = {"model": name, "queued": queued, "quarantined": 0, "running": 1, "ended": {"Ready": 1200}, "batch": 4}
        told |= {"step_s": 0.125, "replicas": {"RUNNING": 2, "STARTING": 1}, "failures": failures}
        return told | {"queued_s": queued_s, "predicted_wait_s": queued_s, "wait": times, "work": times}

    queues = [queue("long", 60, 240.0), queue("short", 15, 60.0), queue("new", 3, None)]
    fleet = {"models": queues, "store_bytes": 2**20, "store_limit_bytes": 2**22}
    page.route("**/v1/admin/fleet", lambda route: route.fulfill(json=fleet))
    page.goto("/fleet")
    bars = [page.get_by_role("meter", name=f"Work that waits in {name}").locator("div") for name in ("long", "short")]
    long, small = (around(bar)["width"] for bar in bars)
    assert round(long / small) == 4
    expect(page.get_by_text("A full bar is 4 min of work.")).to_be_visible()
    short = page.get_by_role("article", name="short")
    short.get_by_text("Last errors").click()
    for words in ("60 s of work", "2 running, 1 starting", "4, 125 ms a step", "out of memory (gen-2-max)"):
        expect(short).to_contain_text(words)
    expect(page.get_by_role("article", name="new")).to_contain_text("How long is not known yet")
    expect(page.get_by_role("region", name="In all")).to_contain_text("1.0 MiB")
    page.unroute("**/v1/admin/fleet")
    page.route("**/v1/admin/fleet", lambda route: route.abort())
    expect(page.get_by_role("status").filter(has_text="trying again")).to_be_visible()
    expect(short).to_contain_text("60 s of work")
