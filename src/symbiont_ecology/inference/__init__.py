"""From a prompt to the adapter that answers: the pool of adapters, routers and routings."""
