-- +goose Up

-- Sums of payments by day and by what became of them, for people: a picture of a
-- month must not read the payments of a month. A day counts from 1970, in UTC.
CREATE TABLE days (
    asset      INTEGER NOT NULL,
    day        INTEGER NOT NULL,
    state      INTEGER NOT NULL,  -- see store.DayState
    payments   INTEGER NOT NULL,
    unreadable INTEGER NOT NULL,  -- of these
    amount     ANY NOT NULL,
    PRIMARY KEY (day, asset, state)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE days;
