ALTER TABLE expiry_reviews ADD COLUMN announced INTEGER /* the time at which an Event said that the object expires, in Unix milliseconds */;
