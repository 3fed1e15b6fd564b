"""GPUs as devices: which GPUs a node has, which are free, and which ones a pod gets."""
