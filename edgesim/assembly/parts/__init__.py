"""The parts that a scenario names: options, own code and its errors, checks of what it returns."""
