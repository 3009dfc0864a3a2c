"""One module per kind of figure; each is a command."""
