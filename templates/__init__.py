"""Installed as kgprof.templates; found through kgprof.render.html."""
