"""The benchmarks: `benchmarks.suite` measures, `benchmarks.report` writes the tables."""
