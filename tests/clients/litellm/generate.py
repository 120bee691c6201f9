"""Asks for an image as an application does that uses the package `litellm`, in an environment of its own.

Takes from standard input `{model, prompt}`, and writes to standard output what came of it. Its environment names the
service: `BFL_API_BASE`, `BFL_API_KEY`.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import json
import sys

import litellm

payload = json.load(sys.stdin)
with contextlib.redirect_stdout(sys.stderr):
    try:
        answer = litellm.image_generation(model=f"black_forest_labs/{payload['model']}", prompt=payload["prompt"])
        output = {"url": answer.data[0].url}
    except Exception as problem:
        output = {"error": str(problem)}
json.dump(output, sys.stdout)
