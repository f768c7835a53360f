"""MetaCortex: one person's durable memory, shared by all the agents they use."""
