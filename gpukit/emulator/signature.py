"""The C++ types of a kernel's parameters, as far as its mangled name or its source tells.

PTX itself keeps sizes only: every pointer is a ``.u64``.
"""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from typing import Any

_RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|struct|__restrict__|__restrict|__grid_constant__)\b")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_NAME = re.compile(r"(?<=[\s*&])([A-Za-z_]\w*)\s*$")
_DEPTH = {")": 1, ">": 1, "(": -1, "<": -1}  # read from the end
_WORDS = {"char", "short", "int", "long", "signed", "unsigned", "float", "double", "bool", "void"}


@lru_cache(maxsize=64)
def parameter_types(kernel: str, source: str, count: int) -> tuple[str, ...]:
    """The types of the ``count`` parameters of a kernel, ``()`` if they are not known.

    ``kernel`` is the name in the PTX. Kernels that are ``extern "C"`` are looked up in ``source``,
    without preprocessing it. Types are written without qualifiers: ``float*``, ``unsigned int``.
    """
    mangled = demangled(kernel)
    found = {_split(mangled)} if mangled else _in_source(kernel, source)
    types = found.pop() if len(found) == 1 else ()
    return types if len(types) == count else ()


@lru_cache(maxsize=256)
def demangled(name: str) -> str:
    """A mangled C++ name in clear, empty if it is none or there is no C++ runtime."""
    runtime = _runtime() if name.startswith("_Z") else None
    if runtime is None:
        return ""
    status = ctypes.c_int()
    text = runtime.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    try:
        return ctypes.string_at(text).decode() if text else ""
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


@lru_cache(maxsize=1)
def _runtime() -> Any:
    for library in _RUNTIMES:
        try:
            found = ctypes.CDLL(library)
        except OSError:
            continue
        found.__cxa_demangle.restype = ctypes.c_void_p
        return found
    return None


def _in_source(kernel: str, source: str) -> set[tuple[str, ...]]:
    """What every definition and declaration of that name in the source says."""
    text = _COMMENTS.sub(" ", source)
    starts = re.finditer(rf"__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(", text)
    return {_split(text[start.end() - 1 : _closing(text, start.end())], True) for start in starts}


def _closing(text: str, at: int) -> int:
    """The place behind the parenthesis that closes the one before ``at``."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def _split(function: str, named: bool = False) -> tuple[str, ...]:
    """The types in the parentheses that a function's text ends with."""
    parts: list[str] = []
    depth, end = 0, len(function) - 1
    for at in range(end, -1, -1):
        depth += _DEPTH.get(function[at], 0)
        if depth == 0 or (depth == 1 and function[at] == ","):
            parts.insert(0, function[at + 1 : end].strip())
            end = at
        if depth == 0:
            break
    return () if parts in ([""], ["void"]) else tuple(_type(part, named) for part in parts)


def _type(text: str, named: bool) -> str:
    """A type in the demangler's spelling; with ``named`` the parameter's name comes off first."""
    text, _, _ = text.partition("=")
    text, bracket, _ = text.strip().partition("[")
    name = _LAST_NAME.search(text) if named else None
    if name and name[1] not in _WORDS:
        text = text[: name.start()]
    words = _QUALIFIERS.sub(" ", text + ("*" if bracket else "")).replace("*", " * ").split()
    return " ".join(words).replace(" *", "*").replace("* )", "*)")
