"""What a scenario costs before anything is trained: per device and iteration, and in 8 bits."""
