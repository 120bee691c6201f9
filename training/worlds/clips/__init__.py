"""One thing on a plain background that moves as it is told, and a tone that goes with it."""
