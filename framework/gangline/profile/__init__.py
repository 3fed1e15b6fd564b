"""One profile: its plugins, how they are called and checked, and what they answered before."""
