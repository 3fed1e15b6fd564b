"""PodTopologySpread and InterPodAffinity: pods are counted by domain and by what their labels say."""
