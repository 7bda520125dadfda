"""The questions of the elementwise study, one module each: rows in, Markdown lines out.

No sentence states a result that is not computed from the rows at hand; a difference that intervals
and noise do not bear out is called not distinguishable.
"""
