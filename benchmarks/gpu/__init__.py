"""The check that runs on a GPU: `python -m benchmarks.gpu`, explained in docs/benchmarks.md.

Needs Python, torch, and the few packages that models are made with: no Ray, Redis or HTTP.
"""
