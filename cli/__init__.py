"""The ``gpukit`` command: what the packages know, formatted for a terminal or a pipe."""
