"""tcgen05: Tensor Memory and the fifth generation of tensor cores (sm_100a).

Nothing here has been compared with hardware yet: all of it is "documentation only", from the text
of the PTX ISA, chapter 9.7.16.
"""
