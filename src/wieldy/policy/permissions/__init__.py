"""Permission rules and the policy that decides about calls."""
