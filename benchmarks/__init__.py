"""Benchmarks: every figure is a ratio measured in one run, results are compared for equality, not only timed."""
