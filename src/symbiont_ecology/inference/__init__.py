"""Who answers a prompt at inference: the pool of adapters, routers, and ways of choosing among
answers."""
