"""Speed against the alternatives, measured in one run on one machine: ratios are what to read."""
