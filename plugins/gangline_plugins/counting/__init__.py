"""PodTopologySpread and InterPodAffinity: they count pods by topology domain and by label selectors."""
