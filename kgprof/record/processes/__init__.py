"""The processes: the parent that plans and starts, the server that forks, the child that runs one
pass after the other."""
