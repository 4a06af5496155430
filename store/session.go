package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/jmoiron/sqlx"
)

// session is one connection with the statements prepared on it, kept by their
// text: the set is small and fixed.
type session struct {
	conn  *sqlx.Conn
	stmts map[string]*sqlx.Stmt
	raw   map[string]driver.Stmt // prepared on the driver's own connection
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

// direct prepares a statement on the driver's own connection: the checks and
// conversions that database/sql makes of every value cost as much as binding and
// reading them.
func (s *session) direct(c any, query string) (driver.Stmt, error) {
	if st := s.raw[query]; st != nil {
		return st, nil
	}
	st, err := c.(driver.ConnPrepareContext).PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	if s.raw == nil {
		s.raw = map[string]driver.Stmt{}
	}
	s.raw[query] = st
	return st, nil
}

// bulk runs a statement past database/sql.
func (s *session) bulk(query string, args []driver.NamedValue) error {
	return s.conn.Raw(func(c any) error {
		st, err := s.direct(c, query)
		if err != nil {
			return err
		}
		_, err = st.(driver.StmtExecContext).ExecContext(context.Background(), args)
		return err
	})
}

// scan runs a query past database/sql and gives every row to fn, which keeps
// nothing of it and asks nothing meanwhile. Arguments and values are of the
// driver's own types: int64, string, []byte or nil. The context is looked at before
// each row and not while one is searched for: the driver would start a goroutine for
// every query to watch it. So a query that sorts much does not belong here.
func (s *session) scan(ctx context.Context, query string, args []any, fn func([]driver.Value) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.conn.Raw(func(c any) error {
		st, err := s.direct(c, query)
		if err != nil {
			return err
		}
		named := make([]driver.NamedValue, len(args))
		for i, a := range args {
			named[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
		}
		rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), named)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		row := make([]driver.Value, len(rows.Columns()))
		for {
			switch err := rows.Next(row); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if err := fn(row); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	})
}

// integers reads the only row of a query for numbers.
func (s *session) integers(ctx context.Context, query string, args []any, to []*int64) error {
	found := false
	err := s.scan(ctx, query, args, func(row []driver.Value) error {
		found = true
		for i := range to {
			*to[i] = integer(row[i])
		}
		return nil
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

// integer is a column value that cannot be anything else; 0 for null.
func integer(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

// close gives the connection back. The session can be used again with another.
func (s *session) close() {
	for _, st := range s.stmts {
		_ = st.Close()
	}
	if s.raw != nil {
		_ = s.conn.Raw(func(any) error {
			for _, st := range s.raw {
				_ = st.Close()
			}
			return nil
		})
	}
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn, s.stmts, s.raw = nil, nil, nil
}

type scanner interface{ Scan(dest ...any) error }

type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }
