"""Search files and folders: grep, glob and tree listings on ripgrep, ignore files and path patterns."""
