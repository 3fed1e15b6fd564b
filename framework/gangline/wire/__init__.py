"""What others write for the scheduler and it for them: custom resources, annotations, the texts in them."""
