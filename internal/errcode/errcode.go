package errcode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
)

// Code names one kind of failure. Codes are part of the public interface: they
// never change meaning and are never reused.
type Code string

// The codes, as the design lists them.
const (
	Usage              Code = "E_USAGE"
	Root               Code = "E_ROOT"
	NoRuns             Code = "E_NO_RUNS"
	RunNotFound        Code = "E_RUN_NOT_FOUND"
	RunDamaged         Code = "E_RUN_DAMAGED"
	OperationNotFound  Code = "E_OPERATION_NOT_FOUND"
	OperationAmbiguous Code = "E_OPERATION_AMBIGUOUS"
	ReceiptTooLarge    Code = "E_RECEIPT_TOO_LARGE"
	TemplateNotFound   Code = "E_TEMPLATE_NOT_FOUND"
	TemplateInvalid    Code = "E_TEMPLATE_INVALID"
	Input              Code = "E_INPUT"
	Policy             Code = "E_POLICY"
	ReviewNotFound     Code = "E_REVIEW_NOT_FOUND"
	ReviewAmbiguous    Code = "E_REVIEW_AMBIGUOUS"
	ReviewDecided      Code = "E_REVIEW_DECIDED"
	ReviewExpired      Code = "E_REVIEW_EXPIRED"
	HoldNotFound       Code = "E_HOLD_NOT_FOUND"
	OperatorKey        Code = "E_OPERATOR_KEY"
	LogWrite           Code = "E_LOG_WRITE"
	LogUnsound         Code = "E_LOG_UNSOUND"
	Index              Code = "E_INDEX"
	Market             Code = "E_MARKET"
	ListingNotFound    Code = "E_LISTING_NOT_FOUND"
	Internal           Code = "E_INTERNAL"
)

// exits holds the exit status of each code: 1 could not answer, 2 bad usage or
// configuration, 3 unsoundness found.
var exits = map[Code]int{
	Usage:              2,
	Root:               2,
	NoRuns:             1,
	RunNotFound:        1,
	RunDamaged:         1,
	OperationNotFound:  1,
	OperationAmbiguous: 1,
	ReceiptTooLarge:    1,
	TemplateNotFound:   1,
	TemplateInvalid:    1,
	Input:              1,
	Policy:             2,
	ReviewNotFound:     1,
	ReviewAmbiguous:    1,
	ReviewDecided:      1,
	ReviewExpired:      1,
	HoldNotFound:       1,
	OperatorKey:        1,
	LogWrite:           1,
	LogUnsound:         3,
	Index:              1,
	Market:             1,
	ListingNotFound:    1,
	Internal:           1,
}

// Exit is the process exit status a command ends with when it fails with c.
func (c Code) Exit() int {
	if status, ok := exits[c]; ok {
		return status
	}
	return 1
}

// All lists every code in alphabetical order.
func All() []Code {
	codes := make([]Code, 0, len(exits))
	for c := range exits {
		codes = append(codes, c)
	}
	sort.Slice(codes, func(i, j int) bool { return codes[i] < codes[j] })
	return codes
}

// Error is a failure a caller can act on.
type Error struct {
	Code    Code
	Message string // what was tried and what happened: lower case, no full stop
	Hint    string // what to do next; may be empty
	Err     error  // the cause, if there is one
}

// New makes an Error whose message is formatted from format and args.
func New(code Code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Wrap makes an Error around a cause, which is appended to the message.
func Wrap(err error, code Code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...) + ": " + err.Error(), Hint: hint, Err: err}
}

// Bare drops the operation and the paths that an error of a file repeats after ours.
func Bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var two *os.LinkError
	if errors.As(err, &two) {
		return two.Err
	}
	return err
}

// Error is the form people and agents read: code, message and, after "try:",
// the hint.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Hint != "" {
		s += ". try: " + e.Hint
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Of returns err as an *Error: itself or the one it wraps, else an E_INTERNAL
// around it. It returns nil for nil.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: err.Error(), Hint: "run `settlewatch doctor` and report this", Err: err}
}
