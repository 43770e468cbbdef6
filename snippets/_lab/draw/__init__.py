"""From raw results to charts and sentences. No torch, no triton."""
