"""Native packers: constants laid out as kernels read them, by generated code on all cores."""
