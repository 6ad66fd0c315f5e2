"""Self-contained HTML pages, and the style of all figures."""
