"""The conformance kit: sentences of the interface, each checked from outside against any server of this dialect.

It knows a server only by its address and a key, and imports nothing of the service that it ships with.
"""
