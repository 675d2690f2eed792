"""What the documents tell to type, typed: blocks are found, and run in order on a real cluster."""
