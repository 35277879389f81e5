"""The two papers' own experiments, run again: their networks, their problems, their figures beside ours."""
