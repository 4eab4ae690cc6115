-- loses how far running imports and verifications are

DROP TABLE works;
