"""Which files a project has, what is in them, and who does the work of reading them."""
