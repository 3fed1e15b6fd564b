"""What is written for us and by us: our custom resources, annotations and the texts in them."""
