"""The problem of the open shop, as dry runs of a live run see it: which unit runs where and when. Its offline
planner is the plugin ``cerebro_planner``."""
