"""One process among others: leadership, endpoints, health, logs, reloading, memory."""
