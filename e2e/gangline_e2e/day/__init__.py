"""A day of mixed work on a large cluster: made from a seed, played against an API server, judged from its objects."""
