"""What the passes of one run measured: times, kernels, idle time, host stacks. No torch."""
