"""The little worlds that the bundled models know: coloured shapes in pictures, and one that moves in clips.

Everything in them can be drawn exactly, told in plain English, and recognised again in what a model made; so there is
no end of things to learn from, and results can be graded.
"""
