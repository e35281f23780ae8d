"""Triton functions for configs: generated text, the interpreter's and the compiler's."""
