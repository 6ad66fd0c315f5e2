"""A small package that extends PEAR."""
