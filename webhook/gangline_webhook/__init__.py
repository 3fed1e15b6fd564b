"""The admission webhook."""
