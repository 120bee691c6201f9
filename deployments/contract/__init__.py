"""Everything that passes between the service and the models. Imports neither torch nor any HTTP or Redis code."""
