"""What torch.compile made of the program: graph breaks, skipped frames, recompiles and their
guards, what runs eagerly, what compiling cost."""
