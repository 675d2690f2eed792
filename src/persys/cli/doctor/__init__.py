"""What usually goes wrong with a new installation, looked for one thing at a time, each with its cure."""
