"""Benchmarks: the cases of a family, the sweep that runs them, and what becomes of the rows.

One idea a module: ``model`` (what a family is), ``axes`` (what a user may ask for), ``runner``
(one case after another, each able to fail alone), ``store`` (rows on disk), ``compare``,
``report``, ``plot`` and ``published`` (what is made of the rows). Formatting for a terminal is
the command line's business, not this package's.
"""
