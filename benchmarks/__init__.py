"""Benchmarks: every figure is a ratio measured in one run, and every contestant's result is checked."""
