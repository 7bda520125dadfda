"""One case to one row: every status, and the numbers in it."""

from __future__ import annotations

import pytest
from fake_family import CEILING, FAMILY, GBS, NAME, PEAK, FakeTarget, Sticky

from gpukit.bench.columns import notes
from gpukit.bench.execute import CaseOptions, fits_cache, run_case
from gpukit.bench.rates import Rates
from gpukit.bench.runner import select_cases
from gpukit.bench.session import LocalSession, Setup
from gpukit.measure import CaptureError, TimingOptions

OPTIONS = CaseOptions(TimingOptions(), peers=FAMILY.peers)


def run(kernel: str, l2: str = "flush", options=OPTIONS, family=FAMILY, **axes):
    selection = {name: (value,) for name, value in {"kernel": kernel, **axes}.items()}
    (case,) = select_cases(family, selection, (l2,))
    return run_case(family, case, FakeTarget(), options, CEILING, "env1")


def test_an_ok_row_has_every_number():
    row = run("scale", n=1 << 20)
    assert (row.status, row.message) == ("ok", "")
    assert (row.family, row.kernel, row.dtype, row.device, row.arch) == (
        "fake", "scale", "f32", NAME, "sm_99",
    )  # fmt: skip
    assert row.shape == {"n": 1 << 20}
    assert row.launch == {"grid": [4096], "block": [256]}
    assert row.time_us == pytest.approx(8 * 2**20 / GBS / 1e3)
    assert row.gbs == pytest.approx(GBS)
    assert row.tflops == pytest.approx(2**20 / row.time_us / 1e6)
    assert row.pct_peak == pytest.approx(100 * GBS / PEAK["gbs"])
    assert row.pct_ceiling == pytest.approx(100 * GBS / CEILING["gbs"])
    assert row.peers["twin"]["ratio"] == pytest.approx(1)
    assert row.peers["slowpoke"] == pytest.approx(
        {"time_us": 2 * row.time_us, "ratio": 2, "candidates": 3})
    assert row.error == 0
    assert row.tolerance == "atol=1e-5"
    assert len(row.samples_us) == 21
    assert row.clocks["sm_mhz"]["median"] == 1755
    assert row.environment == "env1"


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("wrong", "wrong result"),
        ("idle", "wrong result"),
        ("stale", "wrong after it"),
        ("spoils", "wrong after it"),
        ("remembers", "tolerance (atol=1e-5) in buffer set 3"),
    ],
)
def test_a_wrong_row_shows_no_speed(kernel, words):
    row = run(kernel)
    assert row.status == "wrong"
    assert words in row.message
    speed = (row.time_us, row.gbs, row.tflops, row.pct_peak, row.samples_us, row.peers)
    assert speed == (None, None, None, None, [], {})


def test_a_nan_error_is_null_in_the_row():
    assert run("idle").to_dict()["error"] is None


def test_unsupported_says_why():
    row = run("unsupported")
    assert (row.status, row.message) == ("unsupported", "needs sm_100a, this GPU is sm_99")


def test_more_than_the_peak_is_flagged():
    row = run("fast")
    assert row.pct_peak == pytest.approx(200)
    assert "above 100 %" in row.message


def test_throttled_and_unsettled_rows_say_so():
    assert run("hot-chip").status == "throttled"
    assert "sw_thermal_slowdown" in run("hot-chip").message
    assert run("restless").status == "ok"
    assert "had not settled" in run("restless").message


@pytest.mark.parametrize(
    ("l2", "n", "slots", "status"),
    [
        ("flush", 1024, 1, "ok"),
        ("hot", 1024, 1, "cache-resident"),
        ("hot", 1 << 20, 1, "ok"),
        ("rotate", 1 << 15, 4, "cache-resident"),  # 4 x 256 KiB: exactly the 1 MiB of L2
        ("rotate", 1 << 15, 5, "ok"),
    ],
)
def test_rows_that_ran_out_of_the_cache_say_so(l2, n, slots, status):
    assert run("scale", l2, n=n, slots=slots).status == status


def test_throttled_outranks_cache_resident_and_both_are_noted():
    row = run("hot-chip", "hot", n=1024, slots=1)
    assert row.status == "throttled"
    assert "all buffers fit the 1 MiB L2; clocks held back" in row.message


def test_a_peer_that_cannot_run_is_an_empty_entry_with_the_reason():
    options = CaseOptions(TimingOptions(), peers=("twin", "absent"))
    row = run("scale", options=options)
    assert (row.status, row.message) == ("ok", "")
    assert row.peers["absent"] == {"reason": "it is not there"}
    assert row.peers["twin"]["ratio"] == pytest.approx(1)
    assert row.peers["twin"]["candidates"] == 3
    assert notes([row]) == [f"{row.case_key}: peer absent cannot run this case: it is not there"]


class Uncapturable(FakeTarget):
    """Cannot time a work of one name."""

    def __init__(self, name):
        super().__init__()
        self.bad = name

    def time(self, works, options):
        if self.bad in [work.name for work in works]:
            raise CaptureError(self.bad, "it allocates")
        return super().time(works, options)


def test_a_peer_that_cannot_be_captured_is_left_out_ours_is_not():
    (case,) = select_cases(FAMILY, {}, ("rotate",), ("graph",))
    row = run_case(FAMILY, case, Uncapturable("twin"), OPTIONS)
    assert row.status == "ok"
    assert "it allocates" in row.peers["twin"]["reason"]
    assert row.peers["slowpoke"]["ratio"] == pytest.approx(2)
    row = run_case(FAMILY, case, Uncapturable("ours"), OPTIONS)
    assert (row.status, row.time_us) == ("unsupported", None)
    assert row.message.startswith("work 'ours' cannot be captured")


class Asked(FakeTarget):
    """Remembers the timing it was asked for."""

    def time(self, works, options):
        self.options = options
        return super().time(works, options)


@pytest.mark.parametrize(("load", "seconds"), [("burst", 0.0), ("sustained", 3.0)])
def test_only_sustained_cases_run_for_long_before_they_are_timed(load, seconds):
    (case,) = select_cases(FAMILY, {}, loads=(load,))
    target = Asked()
    row = run_case(FAMILY, case, target, CaseOptions(TimingOptions(sustain_s=3.0)))
    assert row.load == load
    assert target.options.sustain_s == seconds


def test_a_ceiling_that_fails_costs_the_share_not_the_row(monkeypatch):
    monkeypatch.setenv("FAKE_CEILING_FAILS", "1")
    monkeypatch.setattr(Sticky, "broken", False)
    session = LocalSession(Setup(FAMILY, "0", OPTIONS))
    row = session.run(select_cases(FAMILY, {})[0])
    assert row.status == "ok" and row.time_us > 0
    assert row.pct_ceiling is None
    assert row.message == "the ceiling could not be measured: RuntimeError: out of memory"
    assert session.ceilings["f32"]["what"] == "not measured: RuntimeError: out of memory"


def test_fits_cache_counts_every_buffer():
    assert fits_cache("hot", 10, 10)
    assert not fits_cache("hot", 11, 10)
    assert not fits_cache("flush", 1, 10)


def test_rates_take_the_limit_that_binds():
    rates = Rates.of(bytes_moved=4_000, flops=6_000_000, time_us=2)
    assert (rates.gbs, rates.tflops) == pytest.approx((2, 3))
    assert rates.percent_of({"gbs": 4, "tflops": 100}) == pytest.approx(50)
    assert rates.percent_of({"gbs": 400, "tflops": 4}) == pytest.approx(75)
    assert rates.percent_of({"what": "nothing"}) is None
    assert rates.percent_of(None) is None
    assert Rates.of(0, 0, 1) == Rates(None, None)
    assert Rates.of(8, 8, 0) == Rates(None, None)


def test_buffers_are_let_go_whatever_happens(tmp_path, monkeypatch):
    log = tmp_path / "closed"
    monkeypatch.setenv("FAKE_CLOSE_LOG", str(log))
    run("scale")
    run("wrong")
    with pytest.raises(ValueError, match="first line"):
        run("raises")
    assert log.read_text() == "closed\n" * 3


def test_a_local_session_turns_errors_into_rows(monkeypatch, capsys):
    monkeypatch.setattr(Sticky, "broken", False)
    session = LocalSession(Setup(FAMILY, "0", CaseOptions(TimingOptions(), debug=True)))
    outcomes = {
        kernel: session.attempt(select_cases(FAMILY, {"kernel": (kernel,)})[0])
        for kernel in ("raises", "refused", "sticky", "scale")
    }
    assert {kernel: (o.row.status, o.healthy) for kernel, o in outcomes.items()} == {
        "raises": ("error", False),
        "refused": ("error", True),  # nothing reached the device
        "sticky": ("error", False),
        "scale": ("error", False),  # the price of not isolating
    }
    assert outcomes["raises"].row.message == "ValueError: first line second line"
    assert outcomes["refused"].row.message == "block=7 is no good"
    assert "Traceback" in capsys.readouterr().err
