package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	mcplib "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Options says what a server offers.
type Options struct {
	Version  string       // what the server says it is; "" means "dev"
	Toolsets []string     // names, see Toolsets; nil means the default ones
	Guard    Guard        // what the toolset guard asks; without it (nil, not a nil pointer) the toolset cannot be named and is no default
	Market   Market       // what the toolset market asks; as with Guard, without it the toolset cannot be named
	Log      *slog.Logger // nil discards
	MaxLine  int          // bytes of one stdio request line; 0 means 4 MiB

	Approvals  Approvals     // what the toolset approvals asks; nil as for Guard
	Operator   Operator      // what the toolset operator asks; nil as for Guard
	Demo       bool          // offer the synthetic tools that spend
	LedgerArgs bool          // inspect_audit_ledger shows arguments
	Host       approval.Host // what the host has fixed of every call
	TrustMeta  bool          // and what it says in params._meta counts as well
}

// toolset is a group of tools that is switched on by name.
type toolset struct {
	name         string
	isDefault    bool
	has          func(Options) bool // whether there is somebody to ask; nil: there always is
	asks         string             // whom it asks, in words
	alone        bool               // it must not be offered beside another
	instructions string             // what an agent is told when the toolset is on
	tools        func(*service) []tool
	register     func(*service) // resources and the like; may be nil
}

// toolsets is the one table of what a server can offer, in the order in which
// its instructions are given.
var toolsets = []toolset{
	{name: "trace", isDefault: true, instructions: traceInstructions, tools: traceTools, register: traceResources},
	{name: "guard", isDefault: true, has: func(o Options) bool { return o.Guard != nil }, asks: "a guard", instructions: guardInstructions, tools: guardTools},
	{name: marketSet, has: func(o Options) bool { return o.Market != nil }, asks: "a market instance", instructions: marketInstructions, tools: marketTools},
	{name: "approvals", has: func(o Options) bool { return o.Approvals != nil }, asks: "a guard", instructions: approvalsInstructions, tools: approvalTools},
	{name: "operator", alone: true, has: func(o Options) bool { return o.Operator != nil }, asks: "an operator's key", instructions: operatorInstructions, tools: operatorTools},
}

// marketSet is the one toolset that another looks for: a check takes a reference to an
// offer only where offers are shown.
const marketSet = "market"

// Toolsets lists the names Options.Toolsets takes; the second result holds the
// ones that are on when none is named.
func Toolsets() (all, defaults []string) {
	for _, ts := range toolsets {
		all = append(all, ts.name)
		if ts.isDefault {
			defaults = append(defaults, ts.name)
		}
	}
	return all, defaults
}

// transport is what differs between the ways to reach a server.
type transport struct {
	name    string
	maxWait int // seconds a tool that waits may wait
}

// longestWait is the wait the schema files name, in seconds. It stays under the
// minute after which many hosts give a call up.
const longestWait = 55

var overStdio = transport{name: "stdio", maxWait: longestWait}

// tool is one entry of a toolset. Its schemas are the files
// schemas/<name>.input.json and schemas/<name>.output.json.
type tool struct {
	name        string
	title       string
	description string
	idempotent  bool
	writes      bool   // it changes something the product keeps
	openWorld   bool   // it asks somebody on the network
	waits       bool   // it mostly waits, so it must not hold up calls that work
	takes       string // file of one more member of its input, "" for none
	run         func(ctx context.Context, a arguments) (answer, error)
	// refused is told of every question that is not answered, before whoever asked
	// is; its error stands in the place of the answer. It may be nil.
	refused func(ctx context.Context, tool string, err *errcode.Error) error
}

// answer is what a tool found: the structured content its output schema
// describes, and a text, which is all that some hosts show an agent.
type answer struct {
	text string
	json []byte
}

// inJSON is an answer whose text is its content: that is what clients of some tools
// read (market contract, section 2; approvals contract, section 3).
func inJSON(content []byte) answer { return answer{text: string(content), json: content} }

// service is a server for one transport.
type service struct {
	mcp       *server.MCPServer
	traces    Traces
	guard     Guard  // nil when its toolset is not offered
	market    Market // as guard
	options   Options
	version   string
	transport transport
	log       *slog.Logger
	waits     map[string]bool // tools that mostly wait
	schemas   []*schema

	// unread is told of every message that reaches no tool, before whoever sent it
	// is; nil where nobody has to know.
	unread func(ctx context.Context, what string, err *errcode.Error) error

	progressEvery time.Duration
}

// build makes the server of one transport. Its schemas begin to be compiled here.
func build(t Traces, o Options, over transport) (*service, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	version := o.Version
	if version == "" {
		version = "dev"
	}
	chosen, err := choose(o)
	if err != nil {
		return nil, err
	}
	var instructions []string
	for _, ts := range chosen {
		if ts.instructions != "" {
			instructions = append(instructions, ts.instructions)
		}
	}
	hooks := &server.Hooks{}
	s := &service{
		mcp: server.NewMCPServer("settlewatch", version,
			server.WithTitle("settlewatch"),
			server.WithInstructions(strings.Join(instructions, "\n\n")),
			server.WithToolCapabilities(false),
			server.WithHooks(hooks),
		),
		traces:    t,
		guard:     o.Guard,
		market:    o.Market,
		options:   o,
		version:   version,
		transport: over,
		log:       log,
		waits:     map[string]bool{},

		progressEvery: progressEvery,
	}
	if !slices.ContainsFunc(chosen, func(ts toolset) bool { return ts.name == marketSet }) {
		s.market = nil
	}
	for _, ts := range chosen {
		for _, tl := range ts.tools(s) {
			if err := s.add(tl); err != nil {
				return nil, err
			}
		}
		if ts.register != nil {
			ts.register(s)
		}
	}
	go s.compile()
	return s, nil
}

// Check refuses what no server offers.
func (o Options) Check() error {
	_, err := choose(o)
	return err
}

// choose looks toolset names up. One that was asked for by name and has nobody to ask
// is an error: an agent without its tools pays unchecked.
func choose(o Options) ([]toolset, error) {
	all, defaults := Toolsets()
	names, named := o.Toolsets, o.Toolsets != nil
	if !named {
		names = defaults
	}
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	sets := len(want)
	var chosen []toolset
	for _, ts := range toolsets {
		if !want[ts.name] {
			continue
		}
		if ts.alone && sets > 1 {
			return nil, errcode.New(errcode.Usage, "start it by itself, in a process that no agent talks to",
				"offer the toolset %s beside another: what it grants is a person's to grant", ts.name)
		}
		delete(want, ts.name)
		switch {
		case ts.has == nil || ts.has(o):
			chosen = append(chosen, ts)
		case named:
			return nil, errcode.New(errcode.Usage, "leave "+ts.name+" out of the toolsets", "offer the toolset %s: this server was started without %s", ts.name, ts.asks)
		}
	}
	for _, name := range names {
		if want[name] {
			return nil, errcode.New(errcode.Usage, "one or more of "+strings.Join(all, ", "),
				"there is no toolset %s", plain.Quote(name, plain.Detail))
		}
	}
	if len(chosen) == 0 {
		return nil, errcode.New(errcode.Usage, "one or more of "+strings.Join(all, ", "), "no toolset was chosen")
	}
	return chosen, nil
}

// add registers a tool with its schemas.
func (s *service) add(t tool) error {
	in, err := loadSchema(t.name+".input.json", s.transport)
	if err != nil {
		return err
	}
	if t.takes != "" {
		if in, err = in.with(t.takes); err != nil {
			return err
		}
	}
	out, err := loadSchema(t.name+".output.json", s.transport)
	if err != nil {
		return err
	}
	no := false
	readOnly := !t.writes
	definition := mcplib.NewToolWithRawSchema(t.name, t.description, in.source)
	definition.RawOutputSchema = out.source
	definition.Annotations = mcplib.ToolAnnotation{
		Title:           t.title,
		ReadOnlyHint:    &readOnly,
		DestructiveHint: &no,
		IdempotentHint:  &t.idempotent,
		OpenWorldHint:   &t.openWorld,
	}
	definition.Title = t.title
	if t.waits {
		s.waits[t.name] = true
	}
	s.mcp.AddTool(definition, s.handler(t, in))
	s.schemas = append(s.schemas, in, out)
	return nil
}

// compile compiles the schemas while clients are already answered: nobody calls a tool
// before it has seen the list of them.
func (s *service) compile() {
	for _, one := range s.schemas {
		if _, err := one.once(); err != nil {
			s.log.Error("a schema does not compile; calls of its tool will fail", "error", err)
		}
	}
}

// handler checks the arguments of a call, runs the tool and renders what it
// says. What a tool cannot answer is a result an agent can read and act on; only
// a fault of this program is a protocol error.
func (s *service) handler(t tool, in *schema) server.ToolHandlerFunc {
	return func(ctx context.Context, request mcplib.CallToolRequest) (result *mcplib.CallToolResult, err error) {
		defer func() {
			if r := recover(); r != nil {
				s.panicked(ctx, t.name, r)
				if t.refused != nil && t.refused(ctx, t.name, errcode.New(errcode.Internal, "", "the server failed while answering")) != nil {
					s.logOf(ctx).Error("a request that panicked could not be written down", "request", t.name)
				}
				result, err = nil, errors.New(panicText)
			}
		}()
		args, err := in.check(rawArguments(ctx, request))
		if err != nil {
			return s.refuse(ctx, t, errcode.Of(err)), nil
		}
		found, err := t.run(ctx, args)
		if err != nil {
			return s.refuse(ctx, t, s.worded(ctx, t.name, err)), nil
		}
		return found.result(), nil
	}
}

// refuse gives a refusal, once whoever has to be told of it has been.
func (s *service) refuse(ctx context.Context, t tool, err *errcode.Error) *mcplib.CallToolResult {
	if t.refused != nil {
		if instead := t.refused(ctx, t.name, err); instead != nil {
			err = s.worded(ctx, t.name, instead)
		}
	}
	return refusal(err)
}

// turnedAway gives the code and the words of the answer to a message that reached no
// tool, once whoever has to be told of it has been. It may have been meant for one
// whose refusals are kept.
func (s *service) turnedAway(ctx context.Context, what string, code int, message string) (int, string) {
	if s.unread == nil {
		return code, message
	}
	if err := s.unread(ctx, what, errcode.New(errcode.Input, "", "%s", message)); err != nil {
		return mcplib.INTERNAL_ERROR, errorText(s.worded(ctx, what, err))
	}
	return code, message
}

// panicText says that this program is at fault, and no more: the details are in
// the log, they may hold paths.
const panicText = "E_INTERNAL: the server failed while answering. try: call again, and report the server's log if it fails again"

func (s *service) panicked(ctx context.Context, what string, r any) {
	s.logOf(ctx).Error("a request panicked", "request", what, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
}

// logOf is the log of what a request causes: its lines say who asked.
func (s *service) logOf(ctx context.Context) *slog.Logger {
	if who := actor(ctx); who != "" {
		return s.log.With("actor", who)
	}
	return s.log
}

// worded is err if it has a code, else an E_INTERNAL that keeps its text back: an
// error without a code was not worded for an agent and may hold paths, so only the
// log gets its text.
func (s *service) worded(ctx context.Context, what string, err error) *errcode.Error {
	var coded *errcode.Error
	if errors.As(err, &coded) && coded.Code != errcode.Internal {
		return coded
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errcode.New(errcode.Internal, "call again", "the call was stopped before it was answered")
	}
	s.logOf(ctx).Error("a request failed", "request", what, "error", err)
	return errcode.New(errcode.Internal, "call again, and report the server's log if it fails again",
		"the server failed while answering")
}

// callInfo travels with a request from a transport of this package to the tool.
type callInfo struct {
	fromWire  bool            // arguments are what the client sent
	arguments []byte          // nil if there were none
	meta      []byte          // the _meta of the request, nil if there was none
	actor     string          // who asks, where the transport knows: "" on stdio
	draining  <-chan struct{} // closed when waits should end early
	progress  func(done, total int, message string)
	errorCode int // what a resource handler wants in place of the library's code
}

type callKey struct{}

func callOf(ctx context.Context) *callInfo {
	info, _ := ctx.Value(callKey{}).(*callInfo)
	return info
}

// rawArguments are the arguments as the client wrote them.
func rawArguments(ctx context.Context, request mcplib.CallToolRequest) []byte {
	if info := callOf(ctx); info != nil && info.fromWire {
		return info.arguments
	}
	return request.Params.RawArguments
}

// answerLimit is the most an answer may be, both copies of its content and the
// envelope counted, in bytes of the line on the wire.
const answerLimit = 48 << 10

// envelope is kept free of answerLimit for what is wrapped around a result: the
// echoed id (at most 256 bytes) and the protocol's own members.
const envelope = 1 << 10

// result is what goes to the client.
func (a answer) result() *mcplib.CallToolResult {
	r := mcplib.NewToolResultText(a.text)
	r.StructuredContent = json.RawMessage(a.json)
	return r
}

// fits reports whether a is within the limit of an answer.
func (a answer) fits() bool {
	if len(a.json) > answerLimit {
		return false
	}
	text, err := json.Marshal(a.result())
	return err == nil && len(text) <= answerLimit-envelope
}

// refusal is an error an agent can act on, as one text block.
func refusal(err error) *mcplib.CallToolResult {
	return mcplib.NewToolResultError(errorText(errcode.Of(err)))
}

// errorText is the one line an agent reads. Message and hint may quote texts
// from strangers, and each is cut on its own so that a long one cannot push the
// hint out.
func errorText(e *errcode.Error) string {
	return (&errcode.Error{
		Code:    e.Code,
		Message: plain.Clean(e.Message, plain.Explanation),
		Hint:    plain.Clean(e.Hint, plain.Explanation),
	}).Error()
}
