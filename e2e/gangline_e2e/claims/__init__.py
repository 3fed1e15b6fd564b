"""Stories of dynamic resource allocation, told on a real control plane to any scheduler."""
