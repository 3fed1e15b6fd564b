"""What waits: the queue and its units, hints that wake them, nominations, pods that wait at permit."""
