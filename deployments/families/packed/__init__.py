"""Packed forwards: the tokens of images of any shape lie in one sequence, and each image attends to itself.

Sizes, lengths of text, references and adapters may differ from picture to picture; only the network is shared. What is
here calls the layers of diffusers' transformer in the transformer's order. What differs is that modulation comes per
token, positions per picture, and that attention keeps to the picture. One picture gives what the transformer's own
forward gives, but for roundings.
"""
