"""The little world that the bundled models know: coloured shapes on plain, gradient or patterned backgrounds.

Everything in it can be drawn exactly (`drawing`), told in plain English (`captions`, `instructions`), and recognised
again in a finished picture (`judge`); so pictures to learn from are made while learning, and results can be graded.
"""
