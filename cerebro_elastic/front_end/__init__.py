"""The ways in besides the command line: runs started from Python (in a script, at a prompt, or in a
notebook), and the live page."""
