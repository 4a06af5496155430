package chp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// maxLine bounds a request in bytes. A longer one is answered, and not kept.
const maxLine = 8 << 20

// Answer answers every line of in by one of out, until in ends. Its errors are those of
// reading and writing.
func Answer(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, long, err := readLine(lines)
		last := errors.Is(err, io.EOF)
		switch {
		case err != nil && !last:
			return errcode.Wrap(err, errcode.Input, "", "read a request from stdin")
		case last && len(line) == 0 && !long:
			return nil
		}
		answer := fmt.Appendf(nil, `{"ok":false,"error":"a request of more than %d bytes"}`, maxLine)
		if !long {
			answer = answerTo(line)
		}
		if _, err := out.Write(append(answer, '\n')); err != nil {
			return errcode.Wrap(err, errcode.Internal, "check where standard output goes", "write the answer")
		}
	}
}

// readLine reads one line. Of one that is too long it keeps nothing.
func readLine(r *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), long, err
		}
	}
}

// answerTo answers one request.
func answerTo(line []byte) []byte {
	result, err := resultOf(line)
	if err != nil {
		dst := jsjson.AppendString([]byte(`{"ok":false,"error":`), []byte(plain.Clean(reasonOf(err), plain.Explanation)))
		return append(dst, '}')
	}
	return append(append([]byte(`{"ok":true,"result":`), result...), '}')
}

// reasonOf says why there is no result. What has no canonical form is named by
// its reason first: that word does not change.
func reasonOf(err error) string {
	var e *canon.Error
	if errors.As(err, &e) {
		return string(e.Reason) + ": at " + e.Path() + ": " + e.Detail()
	}
	return err.Error()
}

type arguments map[string]jsjson.Node

// operations are the operations, each with the arguments it has to have and those it
// may have.
var operations = map[string]struct {
	required, optional []string
	run                func(arguments) ([]byte, error)
}{
	"canonical_json": {[]string{"payload"}, []string{"numbers"}, func(a arguments) ([]byte, error) {
		rule, err := a.rule()
		if err != nil {
			return nil, err
		}
		text, err := canon.Append(nil, a["payload"], rule)
		return jsjson.AppendString(nil, text), err
	}},
	"content_hash": {[]string{"payload"}, []string{"numbers"}, func(a arguments) ([]byte, error) {
		rule, err := a.rule()
		if err != nil {
			return nil, err
		}
		hash, err := canon.Hash(a["payload"], rule)
		return jsjson.AppendString(nil, []byte(hash)), err
	}},
	"chain_hash": {[]string{"prev_sig", "entry"}, []string{"numbers"}, func(a arguments) ([]byte, error) {
		rule, err := a.rule()
		if err != nil {
			return nil, err
		}
		if kind := a["prev_sig"].Kind(); kind != jsjson.String {
			return nil, fmt.Errorf("args.prev_sig: want text, not %s", kind)
		}
		hash, err := canon.Chain(string(a["prev_sig"].Text()), a["entry"], rule)
		return jsjson.AppendString(nil, []byte(hash)), err
	}},
	"evaluate_gate": {[]string{"action"}, []string{"policy", "committed_today"}, func(a arguments) ([]byte, error) {
		action, policy, committed, err := a.question()
		if err != nil {
			return nil, err
		}
		return gateResult(approval.Evaluate(action, policy, committed))
	}},
	"approve_human": {[]string{"action", "approver"}, []string{"policy", "committed_today"}, func(a arguments) ([]byte, error) {
		action, policy, committed, err := a.question()
		if err != nil {
			return nil, err
		}
		if kind := a["approver"].Kind(); kind != jsjson.String {
			return nil, fmt.Errorf("args.approver: want text, not %s", kind)
		}
		return gateResult(approval.ApproveHuman(action, policy, committed, string(a["approver"].Text())))
	}},
}

func resultOf(line []byte) ([]byte, error) {
	var doc jsjson.Doc
	if err := doc.Parse(line); err != nil {
		return nil, &canon.Error{Reason: canon.NotJSON, Err: err}
	}
	request, err := members("the request", doc.Root(), []string{"op", "args"}, nil)
	if err != nil {
		return nil, err
	}
	op, ok := operations[string(request["op"].Text())]
	if !ok {
		return nil, fmt.Errorf("the op %s is not supported", plain.Quote(string(request["op"].Text()), 40))
	}
	args, err := members("args", request["args"], op.required, op.optional)
	if err != nil {
		return nil, err
	}
	return op.run(args)
}

// members are the members of an object that may have these and no others,
// each once.
func members(what string, n jsjson.Node, required, optional []string) (arguments, error) {
	if n.Kind() != jsjson.Object {
		return nil, fmt.Errorf("%s: want an object, not %s", what, n.Kind())
	}
	all := arguments{}
	for name, v := range n.Members() {
		key := string(name.Text())
		switch _, twice := all[key]; {
		case twice:
			return nil, fmt.Errorf("%s: %s: %s stands twice", canon.RepeatedKey, what, plain.Quote(key, 40))
		case !slices.Contains(required, key) && !slices.Contains(optional, key):
			return nil, fmt.Errorf("%s: %s is not known here", what, plain.Quote(key, 40))
		}
		all[key] = v
	}
	for _, key := range required {
		if _, ok := all[key]; !ok {
			return nil, fmt.Errorf("%s: %s is missing", what, key)
		}
	}
	return all, nil
}

// given is an argument that is neither absent nor null.
func (a arguments) given(key string) (jsjson.Node, bool) {
	n, ok := a[key]
	return n, ok && n.Kind() != jsjson.Null
}

func (a arguments) rule() (canon.Rule, error) {
	n, ok := a.given("numbers")
	if !ok {
		return canon.Lexeme, nil
	}
	rule, ok := canon.ParseRule(string(n.Text()))
	if !ok {
		return 0, &canon.Error{Reason: canon.UnknownRule}
	}
	return rule, nil
}

// question is what a gate is asked: without a policy the default one counts, and
// without a total nothing was committed.
func (a arguments) question() (action approval.Action, policy approval.Policy, committed float64, err error) {
	if action, err = approval.ParseAction(a["action"]); err != nil {
		return action, policy, 0, fmt.Errorf("args.action: %w", err)
	}
	policy = approval.DefaultPolicy()
	if n, ok := a.given("policy"); ok {
		if policy, err = approval.ParsePolicy(n); err != nil {
			return action, policy, 0, fmt.Errorf("args.policy: %w", err)
		}
	}
	if n, ok := a.given("committed_today"); ok {
		if n.Kind() != jsjson.Number {
			return action, policy, 0, fmt.Errorf("args.committed_today: want a number, not %s", n.Kind())
		}
		committed = n.Float() // what no double can hold is refused by the gate
	}
	return action, policy, committed, nil
}

// gateResult writes a result with its numbers as doubles, as the protocol does.
func gateResult(r approval.Result, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return canon.Text(raw, canon.Float)
}
