"""What a process tells operators of its work: traces and logs, the same on both sides of the contract."""
