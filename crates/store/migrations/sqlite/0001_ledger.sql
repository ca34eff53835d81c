-- "TidM": tells a database of Tidemill from those of other programs.
PRAGMA application_id = 1416193101;

-- Bodies of specs, once per digest.
CREATE TABLE spec (
    digest BLOB NOT NULL PRIMARY KEY,
    body   BLOB NOT NULL
) STRICT;

-- The snapshot is the truth; the columns beside it are what lists select by.
CREATE TABLE execution (
    number         INTEGER NOT NULL PRIMARY KEY,
    id             BLOB    NOT NULL UNIQUE,
    created_at     INTEGER NOT NULL,
    finished_at    INTEGER,
    state          TEXT    NOT NULL,
    name           TEXT,
    run            TEXT,
    submitter      TEXT,
    owner          TEXT,
    spec           BLOB    NOT NULL,
    event_bytes    INTEGER NOT NULL DEFAULT 0,
    log_bytes      INTEGER NOT NULL DEFAULT 0,
    snapshot_bytes INTEGER NOT NULL DEFAULT 0,
    snapshot       TEXT    NOT NULL
) STRICT;

CREATE INDEX execution_by_age ON execution (created_at DESC, id DESC);
CREATE INDEX execution_unfinished ON execution (created_at) WHERE finished_at IS NULL;
CREATE INDEX execution_by_name ON execution (name, created_at DESC, id DESC) WHERE name IS NOT NULL;
CREATE INDEX execution_by_run ON execution (run, created_at DESC, id DESC) WHERE run IS NOT NULL;
CREATE INDEX execution_by_spec ON execution (spec);

CREATE TABLE label (
    execution INTEGER NOT NULL REFERENCES execution (number) ON DELETE CASCADE,
    key       TEXT    NOT NULL,
    value     TEXT    NOT NULL,
    PRIMARY KEY (execution, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX label_by_value ON label (key, value);

-- `position` is the order of commits over all executions and all processes. It is never used
-- twice, so that whoever reads on from a position misses nothing.
CREATE TABLE event (
    position  INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    execution INTEGER NOT NULL REFERENCES execution (number) ON DELETE CASCADE,
    sequence  INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    UNIQUE (execution, sequence)
) STRICT;

-- Sealed pieces of logs. Their bytes are objects of the blob store.
CREATE TABLE log (
    execution     INTEGER NOT NULL REFERENCES execution (number) ON DELETE CASCADE,
    attempt       INTEGER NOT NULL,
    start         INTEGER NOT NULL,
    bytes         INTEGER NOT NULL,
    stdout_bytes  INTEGER NOT NULL,
    stderr_bytes  INTEGER NOT NULL,
    dropped_bytes INTEGER NOT NULL,
    lines         INTEGER NOT NULL,
    digest        BLOB    NOT NULL,
    object_bytes  INTEGER NOT NULL,
    PRIMARY KEY (execution, attempt, start)
) STRICT, WITHOUT ROWID;

CREATE INDEX log_by_digest ON log (digest);
