"""What listens to torch while a program runs. Each module holds one source of facts, or what one
needs to know where it is: in which call, at which line, in which graph."""
