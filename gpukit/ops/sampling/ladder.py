"""The rungs of the sampling ladder: one job, five algorithms, `cuda_src/sampling/ladder/`.

Each teaches one way to a token, and none is meant for use: `gpukit.sampling.sample` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit import devices, kernels
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.spec import KernelSpec, Value
from gpukit.ops.sampling import rows
from gpukit.ops.sampling.rows import Rows

RUNGS = ("s1", "s2", "s3", "s4", "s5")
_GREEDY = 1e-5
_PARTS = 64  # lists per row that s2 merges, at most
_LEAST_PART = 2048  # tokens of a row that are worth a CTA


@dataclass(frozen=True)
class _Asked:
    """One sampling job: a rung, checked rows, and settings that are the same for all rows."""

    rung: str
    rows: Rows
    temperature: float
    top_k: int  # 0: off
    top_p: float
    joint: bool
    seed: int
    position: int
    tunables: dict[str, Value]

    @property
    def grid(self) -> tuple[int, ...]:
        """CTAs of the launch that writes the tokens."""
        return (min(self.rows.count, 4 * self._sms) if self.rung == "s1" else self.rows.count,)

    @property
    def parts(self) -> int:
        """CTAs per row of s2's first launch: what fills the GPU, of parts that are worth it."""
        wanted = -(-4 * self._sms // self.rows.count)
        return max(1, min(_PARTS, wanted, self.rows.width // max(_LEAST_PART, 8 * self.keep)))

    @property
    def keep(self) -> int:
        """Pairs on each list of s2."""
        return self.top_k + 1

    @property
    def chosen(self) -> dict[str, Value]:
        """All tunables of the rung."""
        defaults = kernels.get(f"sampling.{self.rung}").defaults
        chosen = {**defaults, "dtype": self.rows.dtype.name, **self.tunables}
        if self.rung == "s2" and "size" not in self.tunables:
            # The shortest list on which a tile of pairs dwarfs what is kept: it is sorted fastest.
            least = max(16 * self.keep, 2 * int(chosen["threads"]))
            chosen["size"] = next((s for s in (512, 1024) if s >= least), defaults["size"])
        return chosen

    @property
    def words(self) -> int:
        """u64 of workspace."""
        if self.rung == "s1":
            return self.grid[0] * 2 * self.rows.width
        return self.rows.count * self.parts * self.keep if self.rung == "s2" else 0

    @property
    def _sms(self) -> int:
        return self.rows.device.properties.sm_count


def run_rung(rung: str, logits: Any, *, temperature: float = 1.0, top_k: int = 0,
             top_p: float = 1.0, joint: bool = False, seed: int = 0, position: int = 0,
             out: Any = None, limits: Any = None, workspace: Any = None,
             tunables: Mapping[str, Value] | None = None) -> Any:
    """One token per row by one rung, with the meaning of `sample`; settings are plain numbers.

    All rungs but s4 keep the same tokens and draw the same one. s4 draws with further numbers.

    Args:
        rung: "s1" sort, "s2" two-stage top-k, "s3" pivot search, "s4" rejection, "s5" radix select.
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        joint: top-p counts of the whole row's mass. s4 has nothing else, s2 has it not.
        out: int64 [B].
        limits: float32 [B], written: a logit that all kept tokens reach and no other; not of s4.
        workspace: uint64 [n], at least `workspace_words`; allocated if None.
        tunables: overrides of the rung's in `gpukit.kernels.sampling_ladder`.

    Returns:
        int64 [B].

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
        UnsupportedError: the rung does not have this combination of filters.
    """
    asked = _ask(rung, _adopt(rung, logits), temperature, top_k, top_p, joint, seed, position,
                 tunables)
    device, b = asked.rows.device, asked.rows.count
    out = rows.output(rung, "out", out, (b,), "int64", device)
    if limits is not None:
        if rung == "s4":
            raise UnsupportedError("s4: it has no limits; it knows of one token that it is kept")
        limits = rows.output(rung, "limits", limits, (b,), "float32", device)
    if b:
        _launch(asked, out, limits, _workspace(asked, workspace))
    return out


def workspace_words(rung: str, logits: Any, *, top_k: int = 0) -> int:
    """u64 elements of workspace that `run_rung` needs for these logits."""
    return _sketch(rung, _adopt(rung, logits), top_k, {}).words


def explain_rung(rung: str, logits: Any, top_k: int,
                 tunables: Mapping[str, Value]) -> dict[str, Any]:
    """Grid, block and workspace in bytes of a rung's launch for these logits; s2's parts too."""
    asked = _sketch(rung, _adopt(rung, logits), top_k, tunables)
    chosen = asked.chosen
    facts = {n: x for n, x in chosen.items() if n not in ("dtype", "threads")}
    if rung == "s2":
        facts["parts"] = asked.parts
    return {"grid": asked.grid[0], "block": chosen["threads"], "workspace": 8 * asked.words,
            **facts}


def foresee_rung(rung: str, given: Rows, top_k: int,
                 tunables: Mapping[str, Value]) -> list[tuple[KernelSpec, dict[str, Value]]]:
    """What a rung's call with such rows would compile; nothing if it does not have that k."""
    names = ("s2_lists", "s2") if rung == "s2" else (rung,)
    try:
        chosen = _sketch(rung, given, top_k, tunables).chosen
    except UnsupportedError:
        return []
    return [(kernels.get(f"sampling.{name}"), chosen) for name in names]


def _sketch(rung: str, given: Rows, top_k: int, tunables: Mapping[str, Value]) -> _Asked:
    """The job as far as its launch depends on it."""
    return _ask(rung, given, 1.0, top_k, 1.0, rung == "s4", 0, 0, tunables)


def _adopt(rung: str, logits: Any) -> Rows:
    if rung not in RUNGS:
        raise ArgumentError(f"ladder: rung={rung!r} is not accepted; one of {', '.join(RUNGS)}")
    return rows.adopt(rung, "logits", logits)


def _ask(rung: str, given: Rows, temperature: float, top_k: int, top_p: float, joint: bool,
         seed: int, position: int, tunables: Mapping[str, Value] | None) -> _Asked:
    numbers = [_number(rung, name, value, dtype, given) for name, value, dtype in (
        ("temperature", temperature, "float32"), ("top_k", top_k, "int32"),
        ("top_p", top_p, "float32"), ("seed", seed, "uint64"), ("position", position, "int64"))]
    k = 1 if not numbers[0] > _GREEDY else max(0, min(numbers[1], given.width))
    if k == given.width and rung != "s2":  # which needs a k
        k = 0
    asked = _Asked(rung, given, numbers[0], k, numbers[2], joint, numbers[3], numbers[4],
                   dict(tunables or {}))
    _check(asked)
    return asked


def _number(rung: str, name: str, value: Any, dtype: str, given: Rows) -> Any:
    pointer, number = rows.per_row(rung, name, value, dtype, given)
    if pointer is not None:
        raise ArgumentError(f"{rung}: {name} is an array; accepted: a number, for all rows")
    return number


def _check(asked: _Asked) -> None:
    rung, both = asked.rung, asked.top_k > 0 and asked.top_p < 1
    if rung == "s4" and both and not asked.joint:
        raise UnsupportedError("s4: top-k and top-p together need joint=True")
    if rung == "s2" and both and asked.joint:
        raise UnsupportedError("s2: it has no joint top-p; it never sees the whole row's mass")
    if rung == "s2":
        most = int(asked.tunables.get("size", kernels.get("sampling.s2").defaults["size"])) // 2 - 1
        if not 0 < asked.top_k <= most:
            raise UnsupportedError(f"s2: top_k={asked.top_k}; accepted: 1 to {most}")


def _workspace(asked: _Asked, given: Any) -> Any:
    if given is None:
        return asked.rows.device.empty((asked.words,), "uint64") if asked.words else None
    _, given = devices.adopt("workspace", given, asked.rung)
    if given.size < asked.words:
        raise ArgumentError(f"{asked.rung}: workspace has {given.size} words; accepted: "
                            f"{asked.words} or more")
    return rows.vector(asked.rung, "workspace", given, given.shape, "uint64", asked.rows.device)


def _launch(asked: _Asked, out: Any, limits: Any, workspace: Any) -> None:
    given = asked.rows
    spec, chosen = kernels.get(f"sampling.{asked.rung}"), asked.chosen
    where = (given.pitch, given.width)
    filters = (asked.temperature, asked.top_k, asked.top_p, int(asked.joint), asked.seed,
               asked.position)
    if asked.rung == "s1":
        args: tuple[Any, ...] = (out, limits, workspace, *where, given.count, *filters)
    elif asked.rung == "s2":
        _list_parts(asked, chosen, workspace)
        args = (out, limits, workspace, *where, asked.parts, asked.keep, asked.temperature,
                asked.top_p, asked.seed, asked.position)
    elif asked.rung == "s4":
        args = (out, *where, *filters[:3], *filters[4:])
    else:
        args = (out, limits, *where, *filters)
    kernel = given.device.compile(spec, chosen)
    kernel.launch(asked.grid, (int(chosen["threads"]),), (given.array, *args))


def _list_parts(asked: _Asked, chosen: Mapping[str, Value], workspace: Any) -> None:
    given = asked.rows
    kernel = given.device.compile(kernels.get("sampling.s2_lists"), chosen)
    kernel.launch((asked.parts, given.count), (int(chosen["threads"]),),
                  (given.array, workspace, given.pitch, given.width, asked.keep))
