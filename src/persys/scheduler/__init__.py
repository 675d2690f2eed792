"""The scheduler: owns intent and placement. A thin shell around `persys.core`."""
