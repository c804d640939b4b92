"""Arrays in, arrays out: one algorithm a file, without models or pictures. Each has a slow twin in the tests."""
