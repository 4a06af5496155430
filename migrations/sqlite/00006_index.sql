-- +goose Up

-- One row: which filling of this index it is, the number of the last transaction,
-- and what the index holds in all.
CREATE TABLE meta (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    generation INTEGER NOT NULL,           -- random; a reindex draws a new one
    rev        INTEGER NOT NULL,
    gone       INTEGER NOT NULL DEFAULT 0, -- the last transaction that removed a run
    next_op    INTEGER NOT NULL DEFAULT 1, -- numbers of operations are not given twice
    runs       INTEGER NOT NULL DEFAULT 0,
    operations INTEGER NOT NULL DEFAULT 0,
    events     INTEGER NOT NULL DEFAULT 0,
    payments   INTEGER NOT NULL DEFAULT 0,
    faults     INTEGER NOT NULL DEFAULT 0,
    bytes      INTEGER NOT NULL DEFAULT 0
) STRICT;

-- A run file. Identity is what stat and three checksums say of the covered
-- bytes; `covered` is the offset after the last complete line in the index.
CREATE TABLE runs (
    run_no      INTEGER PRIMARY KEY,
    file        BLOB NOT NULL UNIQUE,         -- name of the entry, raw bytes
    file_key    BLOB NOT NULL,                -- its order in the listing
    run_key     BLOB NOT NULL,                -- the run id, in sortable form
    epoch       INTEGER NOT NULL DEFAULT 0,   -- grows when the run is indexed again from its start
    stat        BLOB NOT NULL,                -- what stat said of the file: see store.Stat
    covered     INTEGER NOT NULL DEFAULT 0,
    crc         INTEGER NOT NULL DEFAULT 0,   -- crc32c of [0, covered)
    head_crc    INTEGER NOT NULL DEFAULT 0,   -- of its first block
    tail_crc    INTEGER NOT NULL DEFAULT 0,   -- of its last block
    lines       INTEGER NOT NULL DEFAULT 0,
    events      INTEGER NOT NULL DEFAULT 0,
    operations  INTEGER NOT NULL DEFAULT 0,
    answers     INTEGER NOT NULL DEFAULT 0,   -- operations that only hold an answer
    faults      INTEGER NOT NULL DEFAULT 0,
    entry_fault TEXT,                         -- why the entry cannot be read, if so
    session     TEXT NOT NULL DEFAULT '',     -- attestation state at `covered` (blind sessions)
    torn        INTEGER NOT NULL DEFAULT 0,   -- what stands after `covered`: 0 nothing, 1 part of a line, 2 a whole object
    twin        INTEGER NOT NULL DEFAULT 0,   -- another file has the same run id
    unverified  INTEGER NOT NULL DEFAULT 0,   -- it grew, and the bytes before were not all compared since
    rev         INTEGER NOT NULL DEFAULT 0    -- transaction that last changed the row
) STRICT;
CREATE INDEX runs_changed ON runs (rev);
CREATE INDEX runs_twins ON runs (file_key) WHERE twin > 0;
CREATE INDEX runs_damaged ON runs (file_key) WHERE faults > 0;
CREATE INDEX runs_torn ON runs (file_key) WHERE torn > 0;
CREATE INDEX runs_listed ON runs (file_key, operations);
CREATE INDEX runs_by_id ON runs (run_key, file_key);

-- Complete lines that are no sound events. At most a bounded number a run, the
-- first ones and the newest; runs.faults counts them all.
CREATE TABLE faults (
    run_no INTEGER NOT NULL,
    line   INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (run_no, line)
) STRICT, WITHOUT ROWID;

-- Dictionaries. A word is a payee, host, resource or asset.
CREATE TABLE words (
    word_no INTEGER PRIMARY KEY,
    word    TEXT NOT NULL,
    hash    INTEGER NOT NULL   -- of word: an index of words would double their cost
) STRICT;
CREATE INDEX words_by_hash ON words (hash);
CREATE TABLE types (
    type_no    INTEGER PRIMARY KEY,
    event_type BLOB NOT NULL,
    has_role   INTEGER NOT NULL,
    role       BLOB NOT NULL,
    UNIQUE (event_type, has_role, role)
) STRICT;
-- A class is what operations of one kind share: the set of types shown (its
-- shape, ascending varints) and the settlement word.
CREATE TABLE classes (
    class_no   INTEGER PRIMARY KEY,
    shape      BLOB NOT NULL,
    settlement INTEGER NOT NULL,
    UNIQUE (shape, settlement)
) STRICT;

-- A set of names (payee addresses, hosts) that operations carry. Most operations
-- share theirs with many others.
CREATE TABLE name_sets (
    set_no INTEGER PRIMARY KEY,
    names  BLOB NOT NULL UNIQUE      -- ascending varints: words
) STRICT;
CREATE TABLE name_set_names (
    name   INTEGER NOT NULL,
    set_no INTEGER NOT NULL,
    PRIMARY KEY (name, set_no)
) STRICT, WITHOUT ROWID;
-- How many operations there are by names, class and blindness. Those of one name
-- are summed up beside those of each set, because a host may sell through any
-- number of addresses.
CREATE TABLE set_counts (
    set_no     INTEGER NOT NULL,
    class      INTEGER NOT NULL,
    blind      INTEGER NOT NULL,
    operations INTEGER NOT NULL,
    PRIMARY KEY (set_no, class, blind)
) STRICT, WITHOUT ROWID;
CREATE INDEX set_counts_none ON set_counts (set_no) WHERE operations = 0;
CREATE TABLE name_counts (
    name       INTEGER NOT NULL,
    class      INTEGER NOT NULL,
    blind      INTEGER NOT NULL,
    operations INTEGER NOT NULL,
    PRIMARY KEY (name, class, blind)
) STRICT, WITHOUT ROWID;
CREATE INDEX name_counts_none ON name_counts (name) WHERE operations = 0;

-- What is shown of an operation. Where payee, host, resource, asset and amount are
-- those of its first payment they are null here; 0 and '' stand for none beside one
-- that has some.
CREATE TABLE operations (
    op_no         INTEGER PRIMARY KEY,
    run_no        INTEGER NOT NULL,
    op_key        BLOB NOT NULL,     -- id in sortable form, UUIDs packed; empty is the null operation
    key_hash      INTEGER NOT NULL,  -- of op_key: an index of ids would double their cost
    class         INTEGER NOT NULL,
    last_key      BLOB NOT NULL,     -- time of the last event, sortable
    rev           INTEGER NOT NULL,  -- transaction that last changed the row; 0 since the index was filled
    events        INTEGER NOT NULL,
    spans         BLOB NOT NULL,     -- per event: varint offset delta, length, type
    crc           INTEGER NOT NULL,  -- over the checksums of its lines, in file order
    side          INTEGER NOT NULL,
    payee         INTEGER,
    host          INTEGER,
    resource      INTEGER,
    asset         INTEGER,
    amount        ANY,               -- as in payments
    pending_until INTEGER NOT NULL DEFAULT 0,
    blind         TEXT,
    no_hook       INTEGER NOT NULL,  -- paid in a session that cannot witness settlements
    names         INTEGER NOT NULL   -- name set: the words it stands under in operation_names
) STRICT;
CREATE INDEX operations_by_key ON operations (run_no, key_hash);
CREATE INDEX operations_newest ON operations (last_key);
CREATE INDEX operations_by_class ON operations (class, last_key);
CREATE INDEX operations_by_run ON operations (run_no, class, last_key);
CREATE INDEX operations_changed ON operations (rev) WHERE rev > 0;

-- Which names (payee addresses, hosts) an operation carries.
CREATE TABLE operation_names (
    name     INTEGER NOT NULL,
    class    INTEGER NOT NULL,
    last_key BLOB NOT NULL,
    op_no    INTEGER NOT NULL,
    PRIMARY KEY (name, class, last_key, op_no)
) STRICT, WITHOUT ROWID;

-- One row a possible payment (guard contract, "Spent"); where it counts with
-- several names its row is repeated with the same n. Only what this side paid
-- makes any. Amounts are atomic units, exact: integers as far as these reach,
-- decimal text beyond. The network is part of the asset; what became of a payment
-- stands in its flags (payment.Flag...).
CREATE TABLE payments (
    op_no    INTEGER NOT NULL,
    i        INTEGER NOT NULL,
    n        INTEGER NOT NULL,
    payee    INTEGER,
    host     INTEGER,
    resource INTEGER,
    asset    INTEGER NOT NULL,  -- 0 when unreadable
    amount   ANY,               -- null when unreadable
    settled  ANY,               -- what an answer said was taken, where it differs
    at       INTEGER NOT NULL,  -- unix milliseconds; the greatest integer when unreadable: inside every window
    flags    INTEGER NOT NULL,
    -- payment.FlagPaired and not payment.FlagUnreadable: settled, and can be summed.
    priced   INTEGER NOT NULL AS (flags & 130 = 2) VIRTUAL,
    PRIMARY KEY (op_no, i)
) STRICT, WITHOUT ROWID;
-- These three hold all that the sum of a window needs: see store.Spending.
CREATE INDEX payments_by_payee ON payments (payee, at, asset, amount, flags) WHERE payee IS NOT NULL;
CREATE INDEX payments_by_host ON payments (host, at, payee, asset, amount, flags) WHERE host IS NOT NULL;
CREATE INDEX payments_by_time ON payments (at, asset, amount, flags);
CREATE INDEX payments_by_resource ON payments (resource, asset, priced, at) WHERE resource IS NOT NULL;
-- Those whose operation is open (payment.FlagOpen): whoever has many of them is asked
-- about as cheaply as anybody.
CREATE INDEX payments_open_by_payee ON payments (payee, asset, amount) WHERE payee IS NOT NULL AND flags & 16 <> 0;
CREATE INDEX payments_open_by_host ON payments (host, asset, amount) WHERE host IS NOT NULL AND flags & 16 <> 0;

-- Sums of payments by slots of time, for windows over everything and for pictures of
-- the past. A slot is the so-manieth of its size since 1970; the sizes are those of
-- store.slotSizes.
CREATE TABLE slots (
    size  INTEGER NOT NULL,
    slot  INTEGER NOT NULL,
    asset INTEGER NOT NULL,  -- 0 when unreadable
    sums  TEXT NOT NULL,     -- what became of them: see store.slotSums
    PRIMARY KEY (size, slot, asset)
) STRICT, WITHOUT ROWID;
-- Who was paid at which host; the payee 0 counts all payments to the host.
CREATE TABLE paid (
    host     INTEGER NOT NULL,
    payee    INTEGER NOT NULL,
    outcome  INTEGER NOT NULL,
    payments INTEGER NOT NULL,
    PRIMARY KEY (host, payee, outcome)
) STRICT, WITHOUT ROWID;
CREATE INDEX paid_none ON paid (host) WHERE payments = 0;

-- What links need (trace contract, section 12.8). A stray is an answer in no
-- operation; it stands in the other tables under its number made negative.
CREATE TABLE strays (
    stray_no INTEGER PRIMARY KEY,
    run_no   INTEGER NOT NULL,
    offset   INTEGER NOT NULL,
    length   INTEGER NOT NULL,
    crc      INTEGER NOT NULL
) STRICT;
CREATE INDEX strays_of_run ON strays (run_no);
-- Answers without a payment in their own operation.
CREATE TABLE answers (
    op_no  INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    run_no INTEGER NOT NULL,
    at_key BLOB NOT NULL,  -- occurred_at in sortable form
    PRIMARY KEY (op_no, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX answers_of_run ON answers (run_no, at_key);
-- Payments without an answer in their own operation; claim_until is the last
-- instant an answer can claim them.
CREATE TABLE candidates (
    run_no      INTEGER NOT NULL,
    claim_until INTEGER NOT NULL,
    op_no       INTEGER NOT NULL,
    n           INTEGER NOT NULL,
    PRIMARY KEY (run_no, claim_until, op_no, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX candidates_of_operation ON candidates (op_no);
-- Transaction hashes named by answers without a payment and by payments
-- without a settlement of their own, for links across runs.
CREATE TABLE transactions (
    hash  TEXT NOT NULL,
    op_no INTEGER NOT NULL,
    PRIMARY KEY (hash, op_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX transactions_of_operation ON transactions (op_no);
CREATE TABLE links (
    op_no  INTEGER NOT NULL,  -- whose answer
    n      INTEGER NOT NULL,
    other  INTEGER NOT NULL,  -- whose payment
    m      INTEGER NOT NULL,
    at_key BLOB NOT NULL,     -- the answer's time, sortable
    by_tx  INTEGER NOT NULL,  -- across runs, by transaction hash
    PRIMARY KEY (op_no, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX links_other ON links (other);

INSERT INTO meta (only, generation, rev) VALUES (1, abs(random()), 0);

-- +goose Down
DROP TABLE links;
DROP TABLE candidates;
DROP TABLE strays;
DROP TABLE transactions;
DROP TABLE answers;
DROP TABLE paid;
DROP TABLE slots;
DROP TABLE payments;
DROP TABLE operation_names;
DROP TABLE operations;
DROP TABLE name_counts;
DROP TABLE set_counts;
DROP TABLE name_set_names;
DROP TABLE name_sets;
DROP TABLE classes;
DROP TABLE types;
DROP TABLE words;
DROP TABLE faults;
DROP TABLE runs;
DROP TABLE meta;
