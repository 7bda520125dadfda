"""Synchronisation: CTA barriers, fences."""

from __future__ import annotations
