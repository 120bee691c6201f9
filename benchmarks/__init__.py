"""Measurements of the running service: `python -m benchmarks`, explained in docs/benchmarks.md.

A benchmark is a module with a `BENCHMARK`, listed in `suite.py`. A missed goal is printed, not failed: machines differ.
Only what may never happen, such as a lost task, ends in exit code 1.
"""
