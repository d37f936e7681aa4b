"""The specification: every operator of profile ``fp32`` as slow, obvious, scalar code.

This package is the authority that every implementation is compared with, bit for bit. It uses integers and
fractions, no array library and no device; docs/numerics.md states the same rules in words.
"""
