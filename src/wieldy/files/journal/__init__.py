"""Every change kept so that it can be taken back."""
