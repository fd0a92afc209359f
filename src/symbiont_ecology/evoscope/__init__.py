"""Evoscope: one page on which people see a run, whole and offline, or while it lives.

``record``      a run as JSON: what the page shows, and no more
``sampling``    what a page of a long run leaves out, and that it says so
``berths``      where bodies are on the living canvas
``bodies``      norm and spectrum of every ΔW that is still there
``comparing``   arms side by side, with intervals
``page``        the HTML file
``live``        the same page, fed while a run goes on
``animation``   GIF and MP4 of the canvas
"""
