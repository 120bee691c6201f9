"""Check that runs on a GPU: `python -m benchmarks.gpu`, described in docs/benchmarks.md.

It needs Python, torch and the packages of the models, but no Ray, Redis or HTTP.
"""
