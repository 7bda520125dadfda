"""Checks that listen to a running kernel."""

from __future__ import annotations
