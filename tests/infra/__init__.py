"""What the synthesized template says."""
