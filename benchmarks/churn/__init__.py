"""Pods that come and go for hours, and what they leave behind in a scheduler."""
