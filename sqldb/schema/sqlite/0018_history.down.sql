-- loses the earlier versions of objects: SELECT coalesce(sum(versions), 0) FROM history

DROP TABLE history_times;
DROP TABLE history_bounds;
DROP TABLE history;
