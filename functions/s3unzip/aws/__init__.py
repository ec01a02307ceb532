"""The code of the Lambda functions around the pipeline: settings, events, metrics, budget.

`handlers` calls these modules. `operate` reads what they write; nothing below imports them.
"""
