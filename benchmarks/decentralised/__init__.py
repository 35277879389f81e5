"""Training with neighbours in a graph only, beside all-reduce."""
