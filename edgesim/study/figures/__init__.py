"""Figures of the cost study, as SVG, and the page that shows them."""
