"""A Ray cluster that others run, too: joined, deployed to, left."""
