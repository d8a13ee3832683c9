"""The truth about runs: what was started, what came of it, and what a repair has to run again."""
