"""The parts that every server process needs: leader election, endpoints, health, logs, reloading, memory."""
