"""Packed forwards: one sequence holds the tokens of images of any shape, and each image attends to itself.

Images may differ in size, length of text, references and adapter; they share the network. These forwards call the
layers of diffusers' transformer in its own order. They differ in modulation per token, positions per image, and
attention within the image. A single image gives the result of the transformer's own forward, but for rounding.
"""
