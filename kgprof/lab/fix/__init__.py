"""`kgprof fix`: levers are tried on copies of a program, and those that help become a
patch."""
