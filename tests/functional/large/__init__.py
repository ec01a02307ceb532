"""Members of any size, scaled down: streamed, copied in the store, split over workers."""
