"""`kgprof fix`: levers are tried on copies of a program, and those that are proved become a
patch."""
