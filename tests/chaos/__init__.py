"""Breaks a running service in every way we know, under load, and then checks that it kept its promises.

    make chaos                                  about five minutes, then a table and `chaos.json`
    python -m chaos --seconds 60 --seed 7       shorter; the same seed breaks the same things in the same order

The service is the real one, as `gen-serve up` starts it, on a data folder of its own. Clients submit, poll, cancel and
hang up over HTTP; receivers of webhooks are slow, failing, hanging, redirecting or behind on their clocks; meanwhile
processes are killed and frozen one after the other. Every answer is noted. In the end the notes, the database and the
object store must agree (`verdict.py`).
"""
