"""Breaks a running service under load and checks that it keeps its promises.

    make chaos                                  about ten minutes, then a table
    python -m chaos --seconds 60 --seed 7       shorter; the same seed causes the same faults in the same order
    make chaos-cluster                          on three nodes, which are killed, drained and added

`gen-serve up` runs on a new data folder. Clients submit, poll, cancel and hang up over HTTP; webhook destinations are
slow, failing, hanging, dead, redirecting or have wrong clocks. Meanwhile one fault follows the other (`faults.py`).
A journal has every response. In the end the journal, the database and the object store must agree (`verdict.py`).
"""
