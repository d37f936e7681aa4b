"""repro_kernels: kernels whose every bit is specified, and the specification itself."""

__version__ = "0.1.0"
