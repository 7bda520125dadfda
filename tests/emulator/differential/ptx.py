"""PTX text around the body of a hand-written kernel."""

from __future__ import annotations

from .alu import HEADER
from .model import Argument, Buffer, Case, Comparison, Exact, TensorMap

REGISTERS = """.reg .b64 %x<24>; .reg .b32 %r<40>; .reg .b16 %h<16>; .reg .pred %q<8>;
.reg .b32 %t, %l; mov.u32 %t, %tid.x; and.b32 %l, %t, 31;"""


def module(body: str, params: list[str], declarations: str = "", cluster: int = 0) -> str:
    """A module with the kernel ``k``."""
    dims = f".explicitcluster .reqnctapercluster {cluster}, 1, 1\n" if cluster else ""
    return (
        f"{HEADER}{declarations}\n.visible .entry k({', '.join(params)})\n{dims}"
        f"{{\n{REGISTERS}\n{body}\nret;\n}}\n"
    )


def parameter(arg: Argument, number: int) -> str:
    if isinstance(arg, TensorMap):
        return f".param .align 64 .b8 p{number}[128]"
    size = 8 if isinstance(arg, Buffer) else arg.value.itemsize
    return f".param .b{8 * size} p{number}"


def kernel_case(
    name: str, body: str, args: list[Argument], *, declarations: str = "", cluster: int = 0,
    grid: int = 1, block: int = 128, shared: int = 0, comparison: Comparison | None = None,
) -> Case:  # fmt: skip
    """A case whose parameters are named p0, p1, ... after its arguments."""
    params = [parameter(arg, i) for i, arg in enumerate(args)]
    text = module(body, params, declarations, cluster)
    return Case(name, text, tuple(args), grid, block, shared, comparison or Exact())


def pointer(register: str, number: int, stride: int, index: str = "%t") -> str:
    """Point a register at element ``index`` of a parameter's array."""
    return (f"ld.param.u64 {register}, [p{number}]; "
            f"mad.wide.u32 {register}, {index}, {stride}, {register};\n")  # fmt: skip


def numbered(prefix: str, count: int) -> str:
    """A vector operand."""
    return "{" + ", ".join(f"{prefix}{i}" for i in range(count)) + "}"


def words_in(prefix: str, count: int, number: int, threads: int, width: int = 32) -> str:
    """Load registers prefix0, ... of every thread from an array [register, thread]."""
    return pointer("%x0", number, width // 8) + "".join(
        f"ld.global.b{width} {prefix}{i}, [%x0+{i * threads * width // 8}];\n" for i in range(count)
    )


def words_out(prefix: str, count: int, number: int, threads: int, width: int = 32) -> str:
    """Store registers prefix0, ... of every thread to an array [register, thread]."""
    return pointer("%x0", number, width // 8) + "".join(
        f"st.global.b{width} [%x0+{i * threads * width // 8}], {prefix}{i};\n" for i in range(count)
    )
