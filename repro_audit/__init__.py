"""repro-audit: did this model, on this input, really compute this?"""

__version__ = "0.1.0"
