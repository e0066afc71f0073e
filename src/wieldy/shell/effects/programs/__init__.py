"""What single programs do with their arguments: tables of accepted options."""
