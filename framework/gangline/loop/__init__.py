"""From the watch to the binding: what the scheduler does with decisions."""
