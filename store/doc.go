// Package store is the SQLite index: opening it, writing facts into it in one
// transaction, and asking it questions that never scan the past.
//
// It owns every SQL statement of the product, the dictionaries (words, types,
// classes) and the health of the file: a corrupt, foreign or vanished index is
// told apart from a busy one, so that its owner can put a fresh one in its
// place. It knows no trace format, no template and no policy, and it must
// never hold a fact that cannot be read again from the run files.
package store
