"""What devices are made of and what they spend: profiles, work, energy, virtual time. No torch."""
