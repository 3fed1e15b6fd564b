"""Writes the reference pages and pictures of the documentation from the code, so that they cannot drift from it."""
