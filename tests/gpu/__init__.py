"""Tests of the GPU kernels: bits on a GPU, the same cases in Triton's interpreter, and the compiled code."""
