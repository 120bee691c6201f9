"""Attacks a running service with whatever a hostile client can send, while a bystander looks on.

    make attack                                             about ten thousand attacks, then a table
    python -m attack --count 500 --seed 7 --families json pictures
    python -m attack --url http://127.0.0.1:8000 --operator-key .gen/operator-key
    python -m attack --replay .attack/failed.jsonl          only what failed before

Only services on this machine's loopback interface are attacked. An attack fails when the service breaks, says more than
it should, lets through what it should refuse, or takes too long (`verdict.py`). All the while another organization's
client polls and submits (`bystander.py`): what the attacks cost it stands beside each family of them (`families`).
"""
