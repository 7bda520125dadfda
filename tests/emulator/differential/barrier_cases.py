"""mbarrier sequences: what each step answers, recorded by one thread."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Case, output
from .ptx import kernel_case

BAR = ".shared .align 8 .b8 bar[8];"


class Sequence:
    """Builds the text of a sequence; every answer goes to the next word of the output."""

    def __init__(self) -> None:
        self.text = "setp.ne.u32 %q1, %t, 0; @%q1 exit; mov.u32 %r0, bar; ld.param.u64 %x0, [p0];\n"
        self.answers = 0
        self.tokens = 0

    def _answer(self, register: str) -> Sequence:
        self.text += f"st.global.b32 [%x0+{4 * self.answers}], {register};\n"
        self.answers += 1
        return self

    def do(self, op: str, *operands: object) -> Sequence:
        """An instruction on the barrier without a result."""
        rest = "".join(f", {o}" for o in operands)
        self.text += f"mbarrier.{op}.shared::cta.b64 [%r0]{rest};\n"
        return self

    def arrive(self, op: str = "arrive", *operands: object) -> Sequence:
        """An arrival; answers the pending count of the state it returned, kept in %x1, %x2, ..."""
        self.tokens += 1
        rest = "".join(f", {o}" for o in operands)
        self.text += f"mbarrier.{op}.shared::cta.b64 %x{self.tokens}, [%r0]{rest};\n"
        self.text += f"mbarrier.pending_count.b64 %r1, %x{self.tokens};\n"
        return self._answer("%r1")

    def transactions(self, op: str, count: int) -> Sequence:
        """expect_tx or complete_tx."""
        scope = "relaxed.cta" if op == "expect_tx" else "relaxed.cluster"
        space = "shared::cta" if op == "expect_tx" else "shared::cluster"
        self.text += f"mbarrier.{op}.{scope}.{space}.b64 [%r0], {count};\n"
        return self

    def test(self, token: int | None = None, parity: int = 0) -> Sequence:
        """test_wait on a kept state or a parity."""
        which = f"%x{token}" if token else f"{parity}"
        form = "" if token else ".parity"
        self.text += f"mbarrier.test_wait{form}.shared::cta.b64 %q2, [%r0], {which};\n"
        self.text += "selp.u32 %r1, 1, 0, %q2;\n"
        return self._answer("%r1")

    def parities(self) -> Sequence:
        return self.test(parity=0).test(parity=1)

    def case(self, name: str) -> Case:
        return kernel_case(f"mbarrier {name}", self.text, [output(self.answers)], block=32,
                           declarations=BAR)  # fmt: skip


def cases() -> Iterator[Case]:
    """All sequences."""
    yield _phases().case("phases")
    yield _counts().case("counts")
    yield _expectations().case("transactions")
    yield _early().case("transactions first")
    yield _drops().case("drops")
    yield _without_completion().case("noComplete")
    s = Sequence().do("init", 1).arrive().test(1).do("inval").do("init", 2)
    yield s.parities().arrive().arrive().test(2).case("init again")


def _phases() -> Sequence:
    s = Sequence().do("init", 3).parities().arrive().test(1).arrive().parities()
    s.arrive().test(1).test(3).parities()
    for _ in range(3):
        s.arrive().parities()
    return s.arrive().test(7).parities()


def _counts() -> Sequence:
    s = Sequence().do("init", 10).arrive("arrive", 4).arrive("arrive", 5).parities()
    s.arrive("arrive", 1).parities().arrive("arrive", 10).parities().arrive()
    return s.arrive("arrive.release.cta", 3).arrive("arrive.release.cta", 6).parities()


def _expectations() -> Sequence:
    s = Sequence().do("init", 1).arrive("arrive.expect_tx", 32).test(1)
    s.transactions("complete_tx", 16).test(1).transactions("complete_tx", 16).test(1).parities()
    s.transactions("expect_tx", 1024).transactions("expect_tx", 1000)
    s.arrive("arrive.expect_tx", 8).parities().transactions("complete_tx", 2032).parities()
    return s.arrive("arrive.expect_tx", 0).parities()


def _early() -> Sequence:
    s = Sequence().do("init", 2).transactions("expect_tx", 64).transactions("complete_tx", 64)
    s.parities().arrive().parities().arrive().parities().transactions("expect_tx", 16)
    return s.arrive().arrive().parities().transactions("complete_tx", 16).parities()


def _drops() -> Sequence:
    s = Sequence().do("init", 3).arrive("arrive_drop").arrive().parities().arrive().parities()
    s.arrive().arrive().parities().arrive("arrive_drop").arrive().parities().arrive().parities()
    return s


def _without_completion() -> Sequence:
    s = Sequence().do("init", 5).arrive("arrive.noComplete", 3).parities()
    s.arrive("arrive", 2).parities().arrive("arrive_drop.noComplete", 2).arrive("arrive", 3)
    return s.parities().arrive("arrive", 3).parities()
