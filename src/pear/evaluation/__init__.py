"""Comparison of forecasters by what their decisions cost over time."""
