"""Breaks a running service in every way we know, under load, and then checks that it kept its promises.

    make chaos                                  about ten minutes, then a table
    python -m chaos --seconds 60 --seed 7       shorter; the same seed breaks the same things in the same order
    make chaos-cluster                          on three nodes, which die, go in order and come

The service is the real one, as `gen-serve up` starts it, on a data folder of its own. Clients submit, poll, cancel and
hang up over HTTP; destinations of webhooks are slow, failing, hanging, dead, redirecting or behind on their clocks;
meanwhile one thing after the other breaks (`faults.py`). Every answer is noted. In the end the notes, the database and
the object store must agree (`verdict.py`).
"""
