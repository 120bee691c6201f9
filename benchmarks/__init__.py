"""Measurements of the running service: `python -m benchmarks`, explained in docs/benchmarks.md."""
