"""The GRPO trainer of ser_fast, and the small world in which it can be tried: `ser-train PRESET`."""
