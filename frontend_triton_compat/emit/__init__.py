"""A schedule as Pallas source: what all targets share, and one dialect a target."""
