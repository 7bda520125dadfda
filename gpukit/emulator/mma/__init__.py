"""Tensor-core instructions: ldmatrix and its kin, mma.sync, and Hopper's wgmma."""

from __future__ import annotations
