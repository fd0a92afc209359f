"""The frozen host and its slots. Only this package imports torch."""
