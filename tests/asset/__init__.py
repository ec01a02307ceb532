"""The built asset in AWS's runtime client, under the Python that Lambda has."""
