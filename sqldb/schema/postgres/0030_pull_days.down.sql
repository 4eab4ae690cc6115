-- loses the record of pulls and pushes, for simulations: SELECT count(*) FROM pull_days

DROP TRIGGER tags_changed_day_trigger ON tags;
DROP TRIGGER tags_pushed_day_trigger ON tags;
DROP FUNCTION tags_day();
DROP TABLE tag_days;
DROP TABLE pull_days;
