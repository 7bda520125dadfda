"""Pictures of layouts, by what they show: registers, shared memory, tensor memory."""

from __future__ import annotations
