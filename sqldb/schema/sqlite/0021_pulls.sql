ALTER TABLE tags ADD COLUMN pulled_at INTEGER /* Unix milliseconds, to the hour; when its manifest was last pulled; null: not since it is recorded */;
