"""What is shipped beside the service for those who run it."""
