"""PTX front end: text in, typed instructions out. Knows nothing of execution."""

from __future__ import annotations
