ALTER TABLE tags ADD COLUMN fetched_at INTEGER /* Unix milliseconds; when the upstream of a cached repository last named its manifest; null: a client pushed the tag */;
