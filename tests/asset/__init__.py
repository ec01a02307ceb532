"""The built asset, under the Python that Lambda has."""
