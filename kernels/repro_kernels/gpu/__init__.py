"""Profile ``fp32`` on NVIDIA GPUs of compute capability 8.0 and later: the functions, the errors and the bits of
``repro_kernels.cpu``, on CUDA tensors.

Every kernel is written in Triton with the arithmetic that the specification names and no other: explicit FMAs,
``div_rn`` and ``sqrt_rn``, no dot product or tree of the compiler's own, no approximation, no float atomics.
"""
