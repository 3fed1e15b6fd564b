"""What plugin authors import, by way of `gangline`: hooks, hints, placements, verdicts."""
