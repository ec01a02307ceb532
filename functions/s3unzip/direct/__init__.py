"""Direct runs: a small archive done by one function, on the same engine as any other run.

The archive's end, which one request brought, is held in memory and read from
there. The run's records are kept in memory too, and written as one object.
"""
