"""`persysctl doctor`: checks for common problems of an installation, each with its fix."""
