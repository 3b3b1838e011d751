"""The passes: what runs a program under a set of listeners, or under nothing but a clock, and
writes down what they saw."""
