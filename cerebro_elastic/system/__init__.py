"""The machine's services that everything uses: files, processes, addresses, clocks, logs, words for
people."""
