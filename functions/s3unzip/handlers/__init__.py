"""The Lambda functions. Each converts its event, calls the pipeline, and returns JSON.

Nothing imports these modules. The template of `infra` names them, so their names stay.
"""
