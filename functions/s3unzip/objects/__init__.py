"""One destination object: metadata, stored form, conflict with what exists, multipart upload."""
