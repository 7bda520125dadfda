"""Studies: a designed set of measurements and the answers computed from them.

A study is a design (which cases), a run (rows in a store of `gpukit.bench`, resumable), and a
report whose every sentence with a number in it is computed from the rows.
"""
