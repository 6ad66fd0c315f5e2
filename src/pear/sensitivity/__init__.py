"""The sensitivity of verified solutions: reduced KKT systems, projections, derivatives and uniqueness."""
