"""The problem of the open shop, as dry runs of a live run see it: where and when each unit runs. Its offline
planner is the plugin ``cerebro_planner``."""
