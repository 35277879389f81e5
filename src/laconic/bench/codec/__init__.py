"""How fast gradients become bytes, and how few bytes."""
