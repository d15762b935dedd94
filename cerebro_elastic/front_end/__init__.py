"""What people meet beside the command line: runs that are started from Python (in a script, at a prompt,
or in a notebook), and the live page."""
