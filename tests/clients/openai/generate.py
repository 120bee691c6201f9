"""Makes images and videos with the package `openai`, in its own environment.

Reads `{example, folder, mask}` from standard input: a script to run in a folder, and an image in base64. Writes the
results of further calls to standard output. The environment names the service by `OPENAI_BASE_URL` and
`OPENAI_API_KEY`.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import openai

payload = json.load(sys.stdin)


def expect_refusal(call: Callable[[], Any]) -> dict[str, Any]:
    """Returns the error of a call that must fail."""
    try:
        call()
    except openai.APIStatusError as problem:
        details = {"kind": type(problem).__name__, "status": problem.status_code, "param": problem.param}
        return {**details, "code": problem.code, "message": problem.message}
    raise AssertionError("no error")


os.chdir(payload["folder"])
with contextlib.redirect_stdout(sys.stderr):
    exec(compile(payload["example"], "example", "exec"), {})

    client = openai.OpenAI(max_retries=0)
    mask = ("mask.png", base64.b64decode(payload["mask"]), "image/png")
    with open("star.png", "rb") as first, open("red.png", "rb") as second:
        masked = client.images.edit(image=first, mask=mask, prompt="a bench", output_format="jpeg")
        both = client.images.edit(image=[first, second], prompt="both", n=2, response_format="url")
    output = {
        "models": [model.id for model in client.models.list()],
        "model": client.models.retrieve("gen-tools/erase-v1").id,
        "masked": masked.output_format,
        "both": [image.url for image in both.data],
        "videos": [video.id for video in client.videos.list(limit=1)],
        "unwanted": client.videos.delete(client.videos.create(prompt="nothing").id).deleted,
        "quality": expect_refusal(lambda: client.images.generate(prompt="x", quality="high")),
        "no model": expect_refusal(lambda: client.images.generate(prompt="x", model="gpt-image-1")),
        "no key": expect_refusal(lambda: openai.OpenAI(api_key="gen_nobody").models.list()),
        "no video": expect_refusal(lambda: client.videos.retrieve("none")),
    }
json.dump(output, sys.stdout)
