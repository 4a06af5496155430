package store

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"
)

// session is one connection with the statements prepared on it, kept by their
// text: the set is small and fixed.
type session struct {
	conn  *sqlx.Conn
	stmts map[string]*sqlx.Stmt
}

func (s *session) prepared(query string) (*sqlx.Stmt, error) {
	if st := s.stmts[query]; st != nil {
		return st, nil
	}
	st, err := s.conn.PreparexContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	if s.stmts == nil {
		s.stmts = map[string]*sqlx.Stmt{}
	}
	s.stmts[query] = st
	return st, nil
}

// begin starts a transaction. One that a cancelled question left open is ended
// first.
func (s *session) begin(ctx context.Context, how string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.exec(ctx, how)
	return err
}

func (s *session) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	st, err := s.prepared(query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

func (s *session) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := s.prepared(query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// row gives the only row of a query for its Scan.
func (s *session) row(ctx context.Context, query string, args ...any) scanner {
	st, err := s.prepared(query)
	if err != nil {
		return failed{err}
	}
	return st.QueryRowContext(ctx, args...)
}

func (s *session) get(ctx context.Context, dest any, query string, args ...any) error {
	st, err := s.prepared(query)
	if err != nil {
		return err
	}
	return st.GetContext(ctx, dest, args...)
}

func (s *session) sel(ctx context.Context, dest any, query string, args ...any) error {
	st, err := s.prepared(query)
	if err != nil {
		return err
	}
	return st.SelectContext(ctx, dest, args...)
}

// close gives the connection back. The session can be used again with another.
func (s *session) close() {
	for _, st := range s.stmts {
		_ = st.Close()
	}
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn, s.stmts = nil, nil
}

type scanner interface{ Scan(dest ...any) error }

type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }
