"""Raw results: where they lie, what they may hold, whether their code has changed. No torch."""
