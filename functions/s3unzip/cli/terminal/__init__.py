"""What a person sees: figures, reports, forecasts, progress; and the standard streams."""
