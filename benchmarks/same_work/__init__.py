"""What an exact comparison without a clock is held to: 20 planted regressions, 40 refactorings."""
