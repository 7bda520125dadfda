"""Where the elements of matrices lie: threads, registers, shared memory, tensor memory, banks.

Derived from a small layout algebra and checked against the emulator and, by `gpukit demo`, against
hardware. NumPy only; nothing here knows of the emulator.
"""

from __future__ import annotations
