"""One tensor averaged over ranks, in every way there is."""
