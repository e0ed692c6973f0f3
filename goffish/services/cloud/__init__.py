"""Machines that can be rented: classes, prices, billing, variability, and those who provide them."""
