"""What to exchange how: cost models and plans, without torch and without ranks."""
