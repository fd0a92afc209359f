"""Parts beside the core: each folder is an extension, and the core imports none of them."""
