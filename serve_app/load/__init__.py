"""Load on any server of pictures, and what came of it: `gen-serve bench`. Knows servers by their HTTP alone."""
