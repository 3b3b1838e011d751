"""Where the time of a step goes, on the host and on the device."""
