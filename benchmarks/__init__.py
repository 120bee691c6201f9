"""Measurements of the running service. `python -m benchmarks` runs them all; each module runs alone, too.

Every benchmark prints its figures beside their targets and writes `results/<name>.json`, with the machine it ran on.
A missed target is printed, not failed: machines differ. Only what may never happen, such as a lost task, ends in exit
code 1.
"""
