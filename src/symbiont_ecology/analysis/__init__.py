"""Views of a run. They see values and events, never the engine or the host."""
