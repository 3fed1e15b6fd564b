"""What waits to be decided: the queue, its units, hints, nominations and pods that wait at permit."""
