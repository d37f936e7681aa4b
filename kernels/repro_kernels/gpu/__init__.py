"""Profile ``fp32`` on NVIDIA GPUs (compute capability 8.0 and later), in Triton and Gluon.

The modules mirror ``repro_kernels.cpu``: the same names, arguments, result types, errors and bits, on
tensors of one CUDA device. Importing this package needs triton; nothing else in ``repro_kernels`` imports
it.
"""
