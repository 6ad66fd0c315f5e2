"""Self-contained HTML pages: their sections, and the style of their figures."""
