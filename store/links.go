package store

import (
	"context"
	"database/sql"
	"errors"
)

// PutStray keeps where an answer in no operation lies, and under its number
// what op says of it.
func (t *Tx) PutStray(s *Stray, op *Operation) error {
	had := &dependents{}
	if s.No == 0 {
		res, err := t.exec("INSERT INTO strays (run_no, offset, length, crc) VALUES (?,?,?,?)", s.Run, s.Offset, s.Length, int64(s.CRC))
		if err != nil {
			return err
		}
		if s.No, err = res.LastInsertId(); err != nil {
			return err
		}
	} else {
		had = nil
	}
	op.No, op.Run = -s.No, s.Run
	has, err := t.dependents(op)
	if err != nil {
		return err
	}
	return t.putDependents(op.No, op.Run, has, had)
}

// StrayByNumber finds a stray; nil when there is none.
func (t *Tx) StrayByNumber(no int64) (*Stray, error) {
	var s Stray
	err := t.row("SELECT stray_no, run_no, offset, length, crc FROM strays WHERE stray_no = ?", []any{no}, &s.No, &s.Run, &s.Offset, &s.Length, &s.CRC)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// HasAnswers tells whether any answer looks for a payment. Where none does,
// no transaction hash can make a link.
func (t *Tx) HasAnswers() (bool, error) {
	var has bool
	err := t.row("SELECT EXISTS (SELECT 1 FROM answers)", nil, &has)
	return has, err
}

// Member is the n-th answer or payment of an operation.
type Member struct {
	Op int64 `db:"op_no"`
	N  int   `db:"n"`
}

// AnswersFrom gives a run's answers without a payment, from a time on.
func (t *Tx) AnswersFrom(run int64, atKey []byte) ([]Member, error) {
	return t.members("SELECT op_no, n FROM answers WHERE run_no = ? AND at_key >= ? ORDER BY op_no, n", run, nonNil(atKey))
}

// CandidatesUntil gives a run's payments without an answer that an answer at
// or after an instant can claim.
func (t *Tx) CandidatesUntil(run int64, until int64) ([]Member, error) {
	return t.members("SELECT op_no, n FROM candidates WHERE run_no = ? AND claim_until >= ? ORDER BY op_no, n", run, until)
}

func (t *Tx) members(query string, args ...any) ([]Member, error) {
	var out []Member
	err := t.sel(context.Background(), &out, query, args...)
	return out, err
}

// OperationsNaming gives the operations (and strays) that a transaction hash
// may link, at most limit of them.
func (t *Tx) OperationsNaming(hash string, limit int) ([]int64, error) {
	var out []int64
	err := t.sel(context.Background(), &out, "SELECT op_no FROM transactions WHERE hash = ? ORDER BY op_no LIMIT ?", hash, limit)
	return out, err
}

// HashesAcross gives the transaction hashes that a run and another one name.
func (t *Tx) HashesAcross(run int64) ([]string, error) {
	if err := t.drain(&t.newOps); err != nil {
		return nil, err
	}
	var out []string
	err := t.sel(context.Background(), &out, `WITH members (op_no) AS (SELECT op_no FROM operations WHERE run_no = ?1 UNION ALL SELECT -stray_no FROM strays WHERE run_no = ?1)
		SELECT DISTINCT t.hash FROM members m CROSS JOIN transactions t ON t.op_no = m.op_no
		WHERE EXISTS (SELECT 1 FROM transactions o WHERE o.hash = t.hash AND o.op_no NOT IN members)`, run)
	return out, err
}

// LinksFrom gives the links of an operation's answers, LinksTo those to its
// payments.
func (t *Tx) LinksFrom(op int64) ([]Link, error) {
	return t.links("SELECT op_no, n, other, m, at_key, by_tx FROM links WHERE op_no = ? ORDER BY n", op)
}

// LinksTo gives the links to an operation's payments.
func (t *Tx) LinksTo(op int64) ([]Link, error) {
	return t.links("SELECT op_no, n, other, m, at_key, by_tx FROM links WHERE other = ? ORDER BY op_no, n", op)
}

// LinksAcross gives the links between a run and others.
func (t *Tx) LinksAcross(run int64) ([]Link, error) {
	return t.links(`SELECT op_no, n, other, m, at_key, by_tx FROM links WHERE by_tx AND (
		op_no IN (SELECT op_no FROM operations WHERE run_no = ?1 UNION ALL SELECT -stray_no FROM strays WHERE run_no = ?1) OR
		other IN (SELECT op_no FROM operations WHERE run_no = ?1))`, run)
}

func (t *Tx) links(query string, args ...any) ([]Link, error) {
	if err := t.drain(&t.newOps); err != nil {
		return nil, err
	}
	var out []Link
	err := t.sel(context.Background(), &out, query, args...)
	return out, err
}

// LinksByHash gives the links across runs of the answers that name a hash.
func (t *Tx) LinksByHash(hash string) ([]Link, error) {
	return t.links(`SELECT l.op_no, l.n, l.other, l.m, l.at_key, l.by_tx FROM transactions t CROSS JOIN links l ON l.op_no = t.op_no
		WHERE t.hash = ? AND l.by_tx`, hash)
}

// PutLink writes a link in place of any other of its answer.
func (t *Tx) PutLink(l Link) error {
	_, err := t.exec("INSERT OR REPLACE INTO links (op_no, n, other, m, at_key, by_tx) VALUES (?,?,?,?,?,?)", l.Op, l.N, l.Other, l.M, nonNil(l.AtKey), l.ByTx)
	return err
}

// DropLink removes the link of an answer.
func (t *Tx) DropLink(op int64, n int) error {
	_, err := t.exec("DELETE FROM links WHERE op_no = ? AND n = ?", op, n)
	return err
}
