from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.measure.works import TimingOptions, Work, check_works


def _launch(slot: int) -> None:
    raise AssertionError("validation must come before any launch")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "clock"}, "method='clock': must be one of events, graph, cupti"),
        ({"l2": "warm"}, "l2='warm': must be one of flush, rotate, hot"),
        ({"min_samples": 0}, "min_samples=0: must be at least 1"),
        ({"max_samples": 5}, "max_samples=5: must be at least min_samples=20"),
        ({"budget_s": 0.0}, "budget_s=0.0: must be positive seconds"),
        ({"budget_s": float("inf")}, "budget_s=inf"),
        ({"rel_error": 0.0}, "rel_error=0.0: must be a positive share"),
        ({"warmup_s": -1.0}, "warmup_s=-1.0: must be 0 s or more"),
        ({"sustain_s": float("nan")}, "sustain_s=nan: must be 0 s or more"),
        ({"method": "graph"}, "l2='flush' with method='graph'"),
    ],
)
def test_bad_options_name_the_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        TimingOptions(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_works_are_refused_before_any_launch() -> None:
    with pytest.raises(ArgumentError, match="slots=0 of work 'a'"):
        Work("a", _launch, slots=0)
    with pytest.raises(ArgumentError, match="works is empty"):
        check_works([], TimingOptions())
    with pytest.raises(ArgumentError, match="at least 2 buffer sets, work 'a' has slots=1"):
        check_works([Work("a", _launch)], TimingOptions(l2="rotate"))
    with pytest.raises(ArgumentError, match="work 'b' has slots=3, work 'a' has slots=2"):
        works = [Work("a", _launch, slots=2), Work("b", _launch, slots=3)]
        check_works(works, TimingOptions(l2="rotate"))
    with pytest.raises(UnsupportedError, match="work 'a' cannot be captured"):
        options = TimingOptions(method="graph", l2="hot")
        check_works([Work("a", _launch, capturable=False)], options)


def test_importing_the_package_loads_neither_cupy_nor_numpy() -> None:
    code = (
        "import sys, gpukit.measure as m; m.TimingOptions(); m.Monitor(None); m.peak_for('x');"
        "assert not {'cupy', 'numpy', 'cuda.bindings', 'cupti'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
