"""One commented spec file of each type: `persysctl init` writes them, and the documents show them."""
