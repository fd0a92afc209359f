"""What everything else stands on: types, files, random draws, registries, events and their log."""
