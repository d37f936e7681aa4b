"""The profile's operators on CPUs, in C: one function per instruction set, the same bits from each.

Importing this package loads nothing: :mod:`repro_kernels.cpu.native` loads the shared object at its first
call.
"""
