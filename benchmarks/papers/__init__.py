"""Reproductions of the two papers' experiments: their networks, their problems, their figures beside ours."""
