"""What each target can do, as data: limits, chips, dtypes, operations."""
