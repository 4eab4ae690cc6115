CREATE TABLE console_sessions (
    -- Browsers that are signed in to the console, and one-time links that sign in.
    id         TEXT PRIMARY KEY,    -- SHA-256 of the secret, hex
    link       BOOLEAN NOT NULL,    -- boolean: a link, which is used once
    user_name  TEXT NOT NULL,
    client     TEXT NOT NULL,       -- the credential, encrypted with a key derived from the secret
    created_at BIGINT NOT NULL,    -- Unix milliseconds
    expires_at BIGINT NOT NULL     -- Unix milliseconds
);

CREATE INDEX console_sessions_user_name_idx ON console_sessions (user_name, created_at);

CREATE INDEX console_sessions_expires_at_idx ON console_sessions (expires_at);
