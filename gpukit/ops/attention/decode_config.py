"""A cut of the caller's own for decode calls, checked; kernels check their tunables themselves."""

from __future__ import annotations

from typing import Any

from gpukit.errors import ArgumentError
from gpukit.kernels.attention_decode import D7, FORMS, WARPGROUP_ROWS
from gpukit.ops.attention.plan import Config, Problem

_F = "attention_decode"
_WARPGROUP = (*(f"warpgroup_{rows}" for rows in WARPGROUP_ROWS), "upright_64")
_NARROW = ("narrow_8", "narrow_16")


def check(config: Any, p: Problem) -> Config:
    """The config, if calls like the problem can be cut like that.

    Raises:
        ArgumentError: names the field, what it is and what is accepted.
    """
    if not isinstance(config, Config):
        raise ArgumentError(f"{_F}: config={config!r:.40} is not accepted; a Config, or None")
    accepted = _NARROW if p.queries else (*FORMS, *_WARPGROUP) if p.wgmma else tuple(FORMS)
    if config.form not in accepted:
        _refuse("form", config.form, f"for such arrays: {', '.join(accepted)}")
    if type(config.parts) is not int or config.parts < 1:
        _refuse("parts", config.parts, "a positive integer")
    if config.spec is D7 and config.warps != 4:
        _refuse("warps", config.warps, f"4 with form={config.form!r}")
    if config.cut == "even" and config.cluster != 1:
        _refuse("cluster", config.cluster, "1 with cut='even'")
    return config


def _refuse(name: str, value: Any, accepted: str) -> None:
    raise ArgumentError(f"{_F}: config's {name}={value!r:.40} is not accepted; {accepted}")
