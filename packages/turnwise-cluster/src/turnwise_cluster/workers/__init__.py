"""Workers: processes that play episodes, whose tokens the process of the run samples."""
