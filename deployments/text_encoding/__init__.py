"""Text encoders that several models share, in processes of their own."""
