CREATE TABLE works (
    id           text COLLATE "C" PRIMARY KEY,
    what         text NOT NULL,
    requested_by text NOT NULL,
    began_at     bigint NOT NULL,
    until        bigint NOT NULL,
    far          text NOT NULL,
    done         bigint NOT NULL,
    total        bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE works IS 'What takes long in other processes, while it goes on: see package underway.';
COMMENT ON COLUMN works.requested_by IS 'the user; empty: a command on the server''s own data';
COMMENT ON COLUMN works.until IS 'when the row counts no more, unless its process renews it';
COMMENT ON COLUMN works.far IS 'how far it is, for people';
COMMENT ON COLUMN works.total IS '0: not known';
