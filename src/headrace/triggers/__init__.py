"""When a pipeline runs by itself: the rules, as plain values and pure decisions."""
