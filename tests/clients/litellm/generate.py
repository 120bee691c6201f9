"""Makes an image with the package `litellm`, in its own environment.

Reads `{model, prompt}` from standard input and writes the result to standard output. The environment names the service
by `BFL_API_BASE` and `BFL_API_KEY`.
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
