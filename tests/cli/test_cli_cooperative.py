"""``gpukit emulate --cooperative``: a grid that synchronises."""

from __future__ import annotations

import numpy as np

KERNEL = r"""
#include <cooperative_groups.h>
extern "C" __global__ void reverse(int* x, int n) {
  auto grid = cooperative_groups::this_grid();
  int i = grid.thread_rank();
  x[i] = i;
  grid.sync();
  int other = x[n - 1 - i];
  grid.sync();
  x[i] = other;
}
"""
WORDS = ["emulate", "k.cu", "--grid", "4", "--block", "64", "--arg", "i32:256=0",
         "--arg", "i32=256", "--save", "0=x.npy"]  # fmt: skip


def test_the_whole_grid_is_resident(gpukit, tmp_path):
    (tmp_path / "k.cu").write_text(KERNEL)
    done = gpukit(*WORDS, "--cooperative", "--policy", "all")
    assert done.code == 0, done.err
    assert (np.load(tmp_path / "x.npy") == np.arange(256)[::-1]).all()


def test_without_it_the_report_says_what_is_missing(gpukit, tmp_path):
    (tmp_path / "k.cu").write_text(KERNEL)
    done = gpukit(*WORDS)
    assert done.code == 1
    assert "--cooperative" in done.out
