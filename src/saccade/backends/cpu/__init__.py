"""The CPU: kernels emitted as LLVM code, run by a team of threads."""
