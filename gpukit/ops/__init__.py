"""Public functions, one module per family: validate, pick a kernel variant, launch."""
