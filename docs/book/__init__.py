"""What the documentation's build generates."""
