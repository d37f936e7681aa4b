"""Builders that several tests use."""
