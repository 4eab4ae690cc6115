-- loses what cached images lack, which is fetched again: SELECT count(*) FROM missing_content

DROP TABLE missing_content;
