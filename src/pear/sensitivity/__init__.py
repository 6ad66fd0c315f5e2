"""The tangent space at verified solutions: reduced KKT systems, projection, uniqueness."""
