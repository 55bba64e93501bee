"""Typed models of this project's own API groups: `anyvisor.io` and `reviews.anyvisor.io`."""
