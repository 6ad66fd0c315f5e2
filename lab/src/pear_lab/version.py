"""The version of the package: that of the library it measures."""

__version__ = "0.1.0"
