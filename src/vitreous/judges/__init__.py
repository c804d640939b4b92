"""Judges that compare units by their top pictures: chat endpoints (LLM Rank), and one that needs no endpoint."""
