"""How well the bundled models do: they are asked for what they never saw, and the answers are graded.

One evaluator (`exam`) for pictures and clips: rows of questions, painters that answer them, figures and samples.
"""
