"""The facts behind a picture, for programs."""

from __future__ import annotations

import csv as csv_module
import io
import json as json_module

from gpukit.layout.picture import Picture


def json(picture: Picture) -> bytes:
    """{"title", "notes", "cells": [facts, ...]}."""
    content = {"title": picture.title, "notes": list(picture.notes),
               "cells": list(picture.records())}
    return (json_module.dumps(content, indent=1) + "\n").encode()


def csv(picture: Picture) -> bytes:
    """A line per cell."""
    records = list(picture.records())
    text = io.StringIO()
    names = list(records[0]) if records else []  # a window may show nothing but empty cells
    writer = csv_module.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()
