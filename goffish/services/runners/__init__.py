"""How the jobs of the scheduling service are run: their folders, their workers, and who looks after both."""
