"""Fast rewards for evidence in video reasoning."""
