"""Packed forwards: the tokens of images of any shape lie in one sequence, and each image attends to itself.

Sizes, lengths of text, references and adapters may differ from image to image; only the network is shared. What is
here calls the layers of diffusers' transformer in the transformer's order. What differs is that modulation comes per
token, positions per image, and that attention keeps to the image. One image gives what the transformer's own
forward gives, but for roundings.
"""
