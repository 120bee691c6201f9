"""Submits a task, receives its result by webhook and verifies the signature.

The service must reach this program: it listens on PORT (9000), and WEBHOOK_URL is its address for the service.
"""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer

from gen_serve_client import Client, WebhookRefused, verify_webhook
from gen_serve_client.types import TaskResult

PORT = int(os.environ.get("PORT", "9000"))
WEBHOOK_URL = os.environ.get("WEBHOOK_URL", f"http://localhost:{PORT}/")
SECRET = os.environ.get("WEBHOOK_SECRET", "s3cret")
received: dict[str, TaskResult] = {}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            task = verify_webhook(SECRET, dict(self.headers), body)
        except WebhookRefused as problem:
            print("refused:", problem)
            status = 400
        else:
            # A webhook may arrive twice; the second one changes nothing here.
            received[task["id"]] = task
            status = 204
        # Answer before doing long work: the service waits for 15 seconds at most.
        self.send_response(status)
        self.end_headers()


with (
    HTTPServer(("", PORT), Receiver) as server,
    Client(os.environ.get("GEN_BASE_URL", "http://localhost:8000"), os.environ["GEN_KEY"]) as client,
):
    fields = {"prompt": "a green diamond on a yellow background", "resolution": "1k", "seed": 7}
    task_id = client.submit("gen-3-image-klein", {**fields, "webhook_url": WEBHOOK_URL, "webhook_secret": SECRET})["id"]
    while task_id not in received:
        server.handle_request()
    print("verified:", task_id, received[task_id]["status"])
