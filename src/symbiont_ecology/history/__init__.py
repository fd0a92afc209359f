"""What happened in a run, from its event log alone: columns over time, sentences, energy, descent.

``history``    what was asked, right, paid and held, by generation
``frames``     generations in groups, where there is no room for each
``phylogeny``  who descends from whom, and a file of it
``flows``      where energy came from and went
``chronicle``  what happened, in plain sentences
``world``      what the world did by itself: what a config says, and no organelle is told
"""
