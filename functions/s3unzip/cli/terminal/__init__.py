"""What a person sees: figures, reports, forecasts, progress; and the standard streams.

Only the modules of `cli` import these. `figures` prints every number, so that it looks the same.
"""
