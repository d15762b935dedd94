"""What the machine gives and everything uses: files, processes, addresses, clocks, logs, words for people."""
