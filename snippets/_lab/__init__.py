"""The apparatus every room uses: oracle, timing, provenance, store, trace, mutation, figures."""
