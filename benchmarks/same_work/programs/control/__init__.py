"""Parts of the controller: what the world does, and what the agent makes of it."""
