"""Write files atomically: resolve the target, commit the write, and roll back after a failure or a crash."""
