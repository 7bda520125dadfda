"""Warp-wide instructions."""

from __future__ import annotations
