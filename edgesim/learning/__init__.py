"""Local learning: flat parameter vectors, optimizers, learning-rate schedules."""
