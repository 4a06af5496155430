// Package migrations holds the schema of the derived index as goose SQL,
// embedded in the binary.
//
// It owns the tables and nothing else: what they mean is said in the SQL,
// how they are filled is package store's business. The index is a cache of the
// run files, so a migration never carries data over: a new schema has a new
// file name and is filled from the files.
package migrations

import "embed"

// Schema is the version of the newest migration and part of the index file's
// name, so that two binaries with different schemas never share a file.
const Schema = 6

// SQLite holds the migrations, one file a version.
//
//go:embed sqlite/*.sql
var SQLite embed.FS
