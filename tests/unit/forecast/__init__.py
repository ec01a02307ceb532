"""The forecast: simulation, cost and rendering, on plans reckoned by hand."""
