"""A run in service: an HTTP server that answers its users and learns from what they accept."""
