"""What exists in the AWS account: stacks, environments and the asset."""
