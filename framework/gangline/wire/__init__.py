"""The data that Gangline shares with users and other programs: custom resources, annotations, the texts in them."""
