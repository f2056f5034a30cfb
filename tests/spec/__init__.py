"""The specification: cases as data, and what runs them."""
