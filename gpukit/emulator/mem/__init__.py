"""Memory spaces: global allocations, shared, local, and the loads and stores on them."""

from __future__ import annotations
