# The README has a user of this name.
exeunt user remove jane
