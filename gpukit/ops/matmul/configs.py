"""How a kernel is run: the configurations to choose among, as objects and as text.

    gemm:bm=128,bn=256,cm=2     matmul.sm90.gemm
    narrow:rows=32,bn=16        matmul.sm90.narrow
    tcgen05:bn=256,ctas=2       matmul.sm100.gemm
    vector                      matmul.gemv_nk or gemv_kn, tuned by `gpukit.ops.gemv`
    sgemm:bm=128,bn=128         matmul.sgemm, for float32
    ladder:rung=sm80.a3         a kernel of the ladder, and an epilogue of its own
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from gpukit.errors import ArgumentError


@dataclass(frozen=True)
class Gemm:
    """`matmul.sm90.gemm`: tile, ring, cluster, and how two warpgroups share the work.

    Attributes:
        bm, bn: rows and columns of C per CTA; of C^T if swap.
        stages: tiles of A and B in flight; 0: as many as shared memory holds.
        cm, cn: CTAs of a cluster along either; they share what they load.
        split: CTAs of a cluster that divide K.
        share: "rows" or "columns" of a tile, or whole tiles: "pingpong".
        swap: compute C^T = B^T A^T, which gives the tensor cores' fixed 64 rows to N.
        group: rows of cluster tiles that are walked together.
    """

    kind: ClassVar[str] = "gemm"
    bm: int = 128
    bn: int = 256
    stages: int = 0
    cm: int = 1
    cn: int = 1
    split: int = 1
    share: str = "rows"
    swap: bool = False
    group: int = 8

    @property
    def rows(self) -> int:
        """Rows of C per warpgroup."""
        return self.bm // 2 if self.share == "rows" else self.bm

    @property
    def columns(self) -> int:
        """Columns of C per warpgroup."""
        return self.bn // 2 if self.share == "columns" else self.bn

    @property
    def cluster(self) -> int:
        """CTAs."""
        return self.cm * self.cn * self.split

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True)
class Narrow:
    """`matmul.sm90.narrow`, which streams weights for a few rows of A.

    Attributes:
        rows: columns of C (rows of weights) per CTA.
        bn: rows of C (tokens) per CTA.
        stages: tiles in flight; 0: as many as shared memory holds.
        split: CTAs of a cluster that divide K.
    """

    kind: ClassVar[str] = "narrow"
    rows: int = 64
    bn: int = 16
    stages: int = 0
    split: int = 1

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True)
class Tcgen05:
    """`matmul.sm100.gemm`: Blackwell's tensor cores.

    Attributes:
        bn: columns of C per CTA; of C^T if swap.
        ctas: CTAs that multiply together: tiles of 128 or 256 rows.
        cluster: CTAs along the rows; they share the tiles of columns.
        stages: tiles of A and B in flight; 0: as many as shared memory holds.
        swap: compute C^T = B^T A^T, which gives the tensor cores' 128 rows to N.
        split: slices of K, at most, each a tile of its own; a second kernel adds them up.
        group: rows of cluster tiles that are walked together.
    """

    kind: ClassVar[str] = "tcgen05"
    bn: int = 128
    ctas: int = 2
    cluster: int = 2
    stages: int = 0
    swap: bool = False
    split: int = 1
    group: int = 8

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True)
class Vector:
    """`matmul.gemv_nk` or `gemv_kn`: up to 8 rows of A, without tensor cores."""

    kind: ClassVar[str] = "vector"

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class Sgemm:
    """`matmul.sgemm`: float32 without tensor cores.

    Attributes:
        bm, bn: rows and columns of C per CTA: 32 to 128 by 64 or 128.
        stages: tiles in flight.
        split: slices of K, at most, each its own CTA; a second kernel adds them up.
    """

    kind: ClassVar[str] = "sgemm"
    bm: int = 128
    bn: int = 128
    stages: int = 3
    split: int = 1

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True)
class Ladder:
    """A kernel of the ladder: "k1" for any type and strides, "sm80.a3" for 16-bit operands."""

    kind: ClassVar[str] = "ladder"
    rung: str = "k1"

    def __str__(self) -> str:
        return text(self)


Config = Gemm | Narrow | Tcgen05 | Vector | Sgemm | Ladder
_ALWAYS = 2  # settings that a text names in any case
_KINDS: dict[str, type[Config]] = {
    c.kind: c for c in (Gemm, Narrow, Tcgen05, Vector, Sgemm, Ladder)}


def text(config: Config) -> str:
    """What `parse` reads: the tile, or the rung, and the settings that differ from the defaults."""
    given = [f"{f.name}={_word(getattr(config, f.name))}" for i, f in enumerate(fields(config))
             if i < _ALWAYS or getattr(config, f.name) != f.default]
    return f"{config.kind}:{','.join(given)}".rstrip(":")


def parse(given: Config | str) -> Config:
    """The configuration that a text describes; a configuration is itself.

    Raises:
        ArgumentError: no such kind, setting or value.
    """
    if isinstance(given, Gemm | Narrow | Tcgen05 | Vector | Sgemm | Ladder):
        _check_types(given, type(given), vars(given))
        return given
    kind, _, rest = str(given).partition(":")
    if kind not in _KINDS:
        raise ArgumentError(f"matmul: config is {given!r}; accepted: {', '.join(_KINDS)}, with "
                            "settings as in gemm:bm=128,bn=256")
    words = [_setting(given, word) for word in rest.split(",") if word]
    settings = dict(words)
    _check_types(given, _KINDS[kind], settings)
    if len(settings) < len(words):
        raise ArgumentError(f"matmul: config is {given!r}; accepted: each setting once")
    build: Callable[..., Config] = _KINDS[kind]
    return build(**settings)


def _check_types(given: object, kind: type[Config], settings: dict[str, Any]) -> None:
    known = {f.name: type(f.default) for f in fields(kind)}
    for name, value in settings.items():
        if known.get(name) is not type(value):
            accepted = ", ".join(f"{n} ({t.__name__})" for n, t in known.items())
            raise ArgumentError(f"matmul: config is {given!r:.200}: {name}={value!r:.40}; accepted:"
                                f" {accepted or 'no settings'}")


def _setting(given: object, word: str) -> tuple[str, int | bool | str]:
    match = re.fullmatch(r"(\w+)=([\w.]+)", word)
    if match is None:
        raise ArgumentError(f"matmul: config is {given!r}: {word!r} is not of the form bm=128")
    name, value = match.groups()
    if value in ("true", "false"):
        return name, value == "true"
    return name, int(value) if value.isdecimal() and len(value) < 20 else value


def _word(value: int | bool | str) -> str:
    return str(value).lower()
