"""Demos: what the hardware, or the emulator, does, next to what this project says it does.

>>> gpukit.demo.wgmma("plain")[0].ok
"""

from __future__ import annotations

from gpukit.demo.cases import CASES, Case
from gpukit.demo.multiply import multiply
from gpukit.demo.probe import Found, Map, wgmma

__all__ = ["CASES", "Case", "Found", "Map", "multiply", "wgmma"]
