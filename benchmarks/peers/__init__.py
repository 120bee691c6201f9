"""Alternatives to this service, as people would build them: `python -m benchmarks run peers`.

Each peer is a small program after its framework's documentation. All load the same bundled checkpoint with the stock
diffusers pipeline; `docs/benchmarks.md` describes the comparison.
"""
