"""What a reader sees, said once: tables, lists, drawings and sentences, which the printers of
render/ lay out."""
