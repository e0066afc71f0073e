"""What an agent remembers from one session to the next: small text files in a folder of the project and one of the user."""
