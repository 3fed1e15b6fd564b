"""What `scale.py` is made of."""
