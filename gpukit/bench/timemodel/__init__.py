"""A model of how long the rungs of a matmul ladder take on a GPU that is not there.

`work` counts on the emulator what a CTA does per step along K and once per tile; `machine` says how
fast a GPU does each of these things, and where the figure comes from; `predict` puts both together
as the rung's schedule lets them overlap; `fit` finds the few figures that nobody publishes from a
ladder measured on an H200. What comes out is always called a model, never a measurement.
"""
