"""Attention for CuPy arrays."""
