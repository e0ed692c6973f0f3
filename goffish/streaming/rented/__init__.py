"""Workers of a flow on machines that a provider rents: the machines, what they need to join, and their bill."""
