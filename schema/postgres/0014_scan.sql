-- What waits for the collector, for its scan: few rows, whatever is stored.
CREATE INDEX objects_finalizing_idx ON objects (uid) WHERE deletion_time IS NOT NULL AND finalizing <> 0;
