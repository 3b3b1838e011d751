"""What goes into and comes out of compiled graphs: aliases, mutations, the names of tensors."""
