"""What people would build in this service's place, and what that gives them: `python -m benchmarks run peers`.

Each peer is a small program after the documentation of what it is built on. All load the same bundled checkpoint by the
stock diffusers pipeline; `docs/benchmarks.md` says what is compared and how.
"""
