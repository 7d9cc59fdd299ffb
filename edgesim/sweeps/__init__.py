"""Many runs of one scenario with different settings: run side by side, resumed, compared."""
