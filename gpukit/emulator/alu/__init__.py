"""Register-to-register instructions. One file per family; importing a file registers it."""

from __future__ import annotations
