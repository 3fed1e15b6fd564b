"""What any server needs: leadership, endpoints, health, logs, reloading, memory."""
