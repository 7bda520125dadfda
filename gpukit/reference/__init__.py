"""Oracles: what the right answer is, in float64 NumPy, and how far from it a kernel may be.

Nothing here shares code with the kernels; inputs are the same rounded values the kernels read.
"""
