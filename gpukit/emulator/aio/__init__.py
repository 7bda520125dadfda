"""Asynchronous copies: cp.async, bulk copies, tensor copies, and the groups that track them."""

from __future__ import annotations
