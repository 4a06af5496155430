package approval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// The events of a row.
const (
	EventDeny      = "deny"
	EventAuthorize = "authorize"
	EventExecute   = "execute"
)

// Row is what one row of the published server's ledger says (approvals contract,
// section 5).
type Row struct {
	At         time.Time
	Event      string
	ReasonCode string // of a deny, and of nothing else
	Tool       string
	Scope      string // "" is null
	ReceiptID  string // "" is null
	ArgsHash   string
	Body       json.RawMessage // the receipt, or {receipt_id, args} of an execution
}

// ledgerGenesis stands before the first row, where the protocol's own ledgers have
// an empty text (approvals contract, section 7, W17).
var ledgerGenesis = strings.Repeat("0", 64)

// Ledger writes rows one behind the other, in the format of the published server.
// The zero value is an empty ledger.
type Ledger struct {
	rows int64
	head string
}

// Anchor is that of the rows so far.
func (l *Ledger) Anchor() LedgerAnchor {
	if l.rows == 0 {
		return LedgerAnchor{0, ledgerGenesis}
	}
	return LedgerAnchor{l.rows, l.head}
}

// mirrored are the members a row has twice: at its top and in its payload.
var mirrored = []string{"event", "reason_code", "tool", "scope", "receipt_id", "args_hash"}

// Append makes the next row, without its newline. What a verifier would refuse is
// not written.
func (l *Ledger) Append(r Row) ([]byte, error) {
	twice := fmt.Appendf(nil, `"event":%s,"reason_code":%s,"tool":%s,"scope":%s,"receipt_id":%s,"args_hash":%s`,
		quoted(r.Event), orNull(r.ReasonCode), quoted(r.Tool), orNull(r.Scope), orNull(r.ReceiptID), quoted(r.ArgsHash))
	payload := fmt.Appendf(nil, `{%s,"body":%s}`, twice, r.Body)
	hash, err := canon.HashText(payload, canon.Lexeme)
	if err != nil {
		return nil, err
	}
	before := l.Anchor()
	seq, ts := strconv.FormatInt(before.Count+1, 10), quoted(stamp(r.At))
	sig, err := rowSig(before.HeadSig, seq, string(ts), string(quoted(r.Event)), hash)
	if err != nil {
		return nil, err
	}
	row := fmt.Appendf(nil, `{"seq":%s,"ts":%s,%s,"payload":%s,"content_hash":"%s","prev_sig":"%s","sig":"%s"}`,
		seq, ts, twice, payload, hash, before.HeadSig, sig)
	v := LedgerVerifier{ledger: *l}
	if fault := v.Line(row); fault != nil {
		return nil, fault
	}
	*l = v.ledger
	return row, nil
}

func quoted(s string) []byte { return jsjson.AppendString(nil, []byte(s)) }

func orNull(s string) []byte {
	if s == "" {
		return []byte("null")
	}
	return quoted(s)
}

// rowSig chains a row to the one before it. seq, ts and event are JSON.
func rowSig(prev, seq, ts, event, contentHash string) (string, error) {
	var doc jsjson.Doc
	entry := fmt.Appendf(nil, `{"seq":%s,"ts":%s,"event":%s,"content_hash":"%s"}`, seq, ts, event, contentHash)
	if err := doc.Parse(entry); err != nil {
		return "", err
	}
	return canon.Chain(prev, doc.Root(), canon.Lexeme)
}

// LedgerAnchor is what somebody elsewhere remembers of a ledger.
type LedgerAnchor struct {
	Count   int64  `json:"count"`
	HeadSig string `json:"head_sig"` // 64 zeros for an empty one
}

// ParseLedgerAnchor reads an anchor. The error is a *[Fault].
func ParseLedgerAnchor(n jsjson.Node) (LedgerAnchor, error) {
	var a LedgerAnchor
	keys := []string{"count", "head_sig"}
	err := members(n, keys, keys, func(key string, v jsjson.Node) (err error) {
		if key == "head_sig" {
			if a.HeadSig, err = text(v); err == nil && !hash64(a.HeadSig) {
				err = &Fault{Detail: "want 64 digits of lower case hexadecimal"}
			}
			return err
		}
		if a.Count, err = strconv.ParseInt(string(v.Raw()), 10, 64); err != nil || v.Kind() != jsjson.Number || a.Count < 0 {
			return &Fault{Detail: "want a number of rows"}
		}
		return nil
	})
	return a, err
}

// LedgerFault is the first thing wrong with a ledger.
type LedgerFault struct {
	Line   int64 // from 1; the one behind the last for a ledger that is too short
	Reason string
}

// Error implements error.
func (f *LedgerFault) Error() string { return fmt.Sprintf("row %d: %s", f.Line, f.Reason) }

// LedgerVerifier reads a ledger of the published server row by row. Unlike that
// server's own it looks at both copies a row holds of its members, at the hash of
// the receipt inside, at every key, and at the seq of the last row (approvals
// contract, section 7, W16).
type LedgerVerifier struct {
	// Anchor is what a witness remembers; nil for none. Without one a tail that was
	// cut, and a ledger that was written anew, do not show.
	Anchor *LedgerAnchor
	ledger Ledger
}

// Rows is the anchor of what was read and found sound.
func (v *LedgerVerifier) Rows() LedgerAnchor { return v.ledger.Anchor() }

// Line looks at the next row, without its newline. After a fault there is nothing
// more to look at.
func (v *LedgerVerifier) Line(raw []byte) *LedgerFault {
	before := v.ledger.Anchor()
	at := before.Count + 1
	sig, err := checkRow(raw, before)
	if err == nil && v.Anchor != nil && v.Anchor.Count == at && v.Anchor.HeadSig != sig {
		err = errors.New("it is another row than the anchor names")
	}
	if err != nil {
		return &LedgerFault{at, err.Error()}
	}
	v.ledger = Ledger{at, sig}
	return nil
}

// End holds what was read against the anchor.
func (v *LedgerVerifier) End() *LedgerFault {
	a, rows := v.Anchor, v.ledger.Anchor()
	switch {
	case a == nil:
	case a.Count == 0 && a.HeadSig != ledgerGenesis:
		return &LedgerFault{1, "the anchor is of no ledger of this format"}
	case rows.Count < a.Count:
		return &LedgerFault{rows.Count + 1, fmt.Sprintf("it is missing: the anchor names %d rows", a.Count)}
	}
	return nil
}

// maxRow bounds a row in bytes.
const maxRow = 8 << 20

// VerifyLedger reads a whole ledger. The fault is what is wrong with the ledger, and
// the error is about reading it.
func VerifyLedger(r io.Reader, anchor *LedgerAnchor) (rows LedgerAnchor, fault *LedgerFault, err error) {
	v := LedgerVerifier{Anchor: anchor}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRow)
	lines.Split(wholeLines)
	for lines.Scan() {
		if fault := v.Line(lines.Bytes()); fault != nil {
			return v.Rows(), fault, nil
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return v.Rows(), &LedgerFault{v.Rows().Count + 1, fmt.Sprintf("it is longer than %d bytes", maxRow)}, nil
	case err != nil:
		return v.Rows(), nil, errcode.Wrap(err, errcode.Input, "", "read the ledger")
	}
	return v.Rows(), v.End(), nil
}

// wholeLines splits at newlines and at nothing else: unlike [bufio.ScanLines] it
// leaves a carriage return where it stands.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

var (
	rowKeys     = append(append([]string{"seq", "ts"}, mirrored...), "payload", "content_hash", "prev_sig", "sig")
	payloadKeys = append(slices.Clone(mirrored), "body")
)

// checkRow proves one row and gives its signature.
func checkRow(raw []byte, before LedgerAnchor) (sig string, err error) {
	var doc jsjson.Doc
	if err := doc.Parse(raw); err != nil {
		return "", fmt.Errorf("it is not one JSON object: %w", err)
	}
	row := doc.Root()
	if err := members(row, rowKeys, rowKeys, rowMember); err != nil {
		return "", err
	}
	payload := row.Get("payload")
	if err := members(payload, payloadKeys, payloadKeys, rowMember); err != nil {
		return "", within(".payload", err)
	}
	for _, key := range mirrored {
		if !same(row.Get(key), payload.Get(key)) {
			return "", fmt.Errorf("%s is not what its payload says", key)
		}
	}
	if event := string(row.Get("event").Text()); (event == EventDeny) != (row.Get("reason_code").Kind() == jsjson.String) {
		return "", errors.New("a deny has a reason_code, and nothing else has one")
	}
	if err := checkBody(row, payload.Get("body")); err != nil {
		return "", fmt.Errorf("payload.body: %w", err)
	}
	return checkHashes(row, payload, before)
}

func checkHashes(row, payload jsjson.Node, before LedgerAnchor) (sig string, err error) {
	hash, err := canon.Hash(payload, canon.Lexeme)
	switch seq := string(row.Get("seq").Raw()); {
	case err != nil:
		return "", err
	case seq != strconv.FormatInt(before.Count+1, 10):
		return "", fmt.Errorf("its seq is not %d", before.Count+1)
	case hash != string(row.Get("content_hash").Text()):
		return "", errors.New("its content_hash is not that of its payload")
	case before.HeadSig != string(row.Get("prev_sig").Text()):
		return "", errors.New("its prev_sig is not the sig of the row before")
	}
	sig, err = rowSig(before.HeadSig, string(row.Get("seq").Raw()), string(row.Get("ts").Raw()), string(row.Get("event").Raw()), hash)
	if err == nil && sig != string(row.Get("sig").Text()) {
		err = errors.New("its sig is not that of its content")
	}
	return sig, err
}

// rowMember looks at the type of a member of a row or of its payload.
func rowMember(key string, v jsjson.Node) error {
	switch key {
	case "seq":
		if v.Kind() != jsjson.Number {
			return wrong(v, "a number")
		}
	case "event":
		if s, err := text(v); err != nil || !slices.Contains([]string{EventDeny, EventAuthorize, EventExecute}, s) {
			return &Fault{Detail: "want deny, authorize or execute"}
		}
	case "ts":
		if s, err := text(v); err != nil || isInstant(s) != "" {
			return &Fault{Detail: "want an instant"}
		}
	case "reason_code", "scope", "receipt_id":
		if v.Kind() != jsjson.Null && v.Kind() != jsjson.String {
			return wrong(v, "text or null")
		}
	case "payload", "body":
		if v.Kind() != jsjson.Object {
			return wrong(v, "an object")
		}
	default:
		_, err := text(v)
		return err
	}
	return nil
}

// same reports whether two values say the same, however they are spelt.
func same(a, b jsjson.Node) bool {
	x, err := canon.Append(nil, a, canon.Lexeme)
	if err != nil {
		return false
	}
	y, err := canon.Append(nil, b, canon.Lexeme)
	return err == nil && bytes.Equal(x, y)
}

// bodyKeys are the members of a row's body, by event, and of these shared the
// ones the row has as well.
var bodyKeys = map[string]struct{ keys, shared []string }{
	EventDeny: {[]string{"kind", "receipt_id", "tool", "scope", "reason_code", "detail", "args_hash", "issued_at", "content_hash"},
		[]string{"receipt_id", "tool", "scope", "reason_code", "args_hash"}},
	EventAuthorize: {[]string{"kind", "receipt_id", "tool", "scope", "args_hash", "issued_at", "expires_at", "approver", "nonce", "content_hash"},
		[]string{"receipt_id", "tool", "scope", "args_hash"}},
	EventExecute: {[]string{"receipt_id", "args"}, []string{"receipt_id"}},
}

// checkBody proves the receipt a row is about.
func checkBody(row, body jsjson.Node) error {
	event := string(row.Get("event").Text())
	want := bodyKeys[event]
	if err := members(body, want.keys, want.keys, func(string, jsjson.Node) error { return nil }); err != nil {
		return err
	}
	for _, key := range want.shared {
		if !same(row.Get(key), body.Get(key)) {
			return fmt.Errorf("its %s is not what the row says", key)
		}
	}
	if event == EventExecute {
		return nil
	}
	kind := map[string]string{EventDeny: "deny", EventAuthorize: "authorization"}[event]
	hash, err := canon.Hash(body, canon.Lexeme, "content_hash")
	switch {
	case err != nil:
		return err
	case string(body.Get("kind").Text()) != kind:
		return fmt.Errorf("its kind is not %s", kind)
	case string(body.Get("content_hash").Text()) != hash:
		return errors.New("its content_hash is not its own")
	}
	return nil
}
