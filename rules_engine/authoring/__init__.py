"""What platform teams run: check, test, explain, schema and convert. Results are values; rendering comes after."""
