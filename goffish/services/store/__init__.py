"""Job store of the scheduling service: specifications, states, events and the database."""
