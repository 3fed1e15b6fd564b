"""The judge of a history: it imports the standard library alone, and knows of Gangline the annotations of pods."""
