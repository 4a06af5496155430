package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The works in this file are yardsticks made of programs that may be
// installed. Each prints how many operations it found.

// external runs a program and takes its time and memory.
func external(ctx context.Context, t task, name, stdin string, args ...string) (sample, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return sample{Skipped: name + " is not installed"}, nil
	}
	if err != nil {
		return sample{}, fmt.Errorf("find %s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = t.Scratch
	cmd.Stdin = strings.NewReader(stdin)
	begin := time.Now()
	out, err := cmd.Output()
	s := sample{Seconds: time.Since(begin).Seconds(), CPU: cpuTime(true).Seconds(), RSS: childrenRSS()}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return s, fmt.Errorf("run %s: %w", name, err)
	}
	if s.Operations, err = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64); err != nil {
		return s, fmt.Errorf("read what %s found: %w", name, err)
	}
	return s, check(t, s)
}

// sqliteShell imports the lines and rolls them up with JSON functions.
func sqliteShell(ctx context.Context, t task) (sample, error) {
	names, err := runFiles(t.Root)
	if err != nil {
		return sample{}, err
	}
	var b strings.Builder
	b.WriteString("PRAGMA synchronous = NORMAL;\nCREATE TABLE lines (line TEXT);\n.mode ascii\n.separator \"\\037\" \"\\n\"\n")
	for _, name := range names {
		fmt.Fprintf(&b, ".import '%s' lines\n", strings.ReplaceAll(name, "'", "''"))
	}
	b.WriteString(`.mode list
CREATE TABLE operations AS SELECT line ->> '$.context_id' AS op, min(line ->> '$.occurred_at') AS first_at, max(line ->> '$.occurred_at') AS last_at,
	count(*) AS events, max(line ->> '$.payload.requirements.pay_to') AS payee, max(line ->> '$.payload.requirements.amount') AS amount,
	max(line ->> '$.payload.resource.url') AS url, max(line ->> '$.payload.settle.transaction') AS tx
	FROM lines WHERE line ->> '$.context_id' IS NOT NULL GROUP BY 1;
CREATE UNIQUE INDEX by_op ON operations (op);
CREATE INDEX by_payee ON operations (payee, last_at);
CREATE INDEX newest ON operations (last_at);
SELECT count(*) FROM operations;
`)
	return external(ctx, t, "sqlite3", b.String(), "shell.db")
}

// duckdb scans the files and groups; it keeps nothing.
func duckdb(ctx context.Context, t task) (sample, error) {
	glob := strings.ReplaceAll(filepath.Join(t.Root, "events", "*.ndjson"), "'", "''")
	terms := "STRUCT(scheme VARCHAR, network VARCHAR, asset VARCHAR, amount VARCHAR, pay_to VARCHAR)"
	return external(ctx, t, "duckdb", fmt.Sprintf(`SET threads = 2;
SELECT count(*) FROM (SELECT context_id, min(occurred_at), max(occurred_at), count(*), max(payload.requirements.pay_to), max(payload.requirements.amount),
	max(payload.resource.url), max(payload.settle.transaction) FROM read_json('%s', format = 'newline_delimited', columns = {event_id: 'VARCHAR',
	event_type: 'VARCHAR', occurred_at: 'VARCHAR', context_id: 'VARCHAR', seq: 'DOUBLE', role: 'VARCHAR',
	payload: 'STRUCT(resource STRUCT(url VARCHAR), requirements %s, accepts %s[], settle STRUCT(success BOOLEAN, "transaction" VARCHAR))'})
	WHERE context_id IS NOT NULL GROUP BY context_id);
`, glob, terms, terms), "-noheader", "-list")
}

// node reads, parses and groups, as the reference's core begins; it keeps
// nothing.
func node(ctx context.Context, t task) (sample, error) {
	const script = `const fs = require('fs'), path = require('path'), dir = process.argv[2];
let operations = 0;
for (const name of fs.readdirSync(dir)) {
	const groups = new Map();
	for (const line of fs.readFileSync(path.join(dir, name), 'utf8').split('\n')) {
		if (line.trim() === '') continue;
		const event = JSON.parse(line);
		if (event.context_id === undefined) continue;
		const group = groups.get(event.context_id);
		if (group) group.push(event); else groups.set(event.context_id, [event]);
	}
	operations += groups.size;
}
console.log(operations);
`
	file := filepath.Join(t.Scratch, "group.js")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return sample{}, err
	}
	return external(ctx, t, "node", "", file, filepath.Join(t.Root, "events"))
}
