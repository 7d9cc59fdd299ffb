"""What a step and a round cost a device: work and memory, counted and in closed form."""
