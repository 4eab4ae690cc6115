-- loses the record of pulls and pushes, for simulations: SELECT count(*) FROM pull_days

DROP TRIGGER tags_inserted_day_trigger;
DROP TRIGGER tags_pushed_day_trigger;
DROP TRIGGER tags_deleted_day_trigger;
DROP TABLE tag_days;
DROP TABLE pull_days;
