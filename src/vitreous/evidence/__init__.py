"""Numbers that say whether a finding is real: pure functions of arrays."""
