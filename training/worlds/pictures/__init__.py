"""Up to three coloured shapes on a plain, gradient, striped, checkered or dotted background."""
