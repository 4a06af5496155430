package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// demoTrace is what the recorder of an agent writes that buys a forecast, then a
// report, whose answer never comes, and then the report again. Events have the shape
// of a recording; names, addresses and times are made up.
//
//go:embed demo
var demoTrace embed.FS

// The purchases of the demo, by the beginnings of their ids.
const (
	demoForecast = "4f9d1b26"
	demoReport   = "c41b7a90"
)

// demoQuestion is what the agent asks about the report, each time.
const demoQuestion = `{"counterparty": "reports.example", "amount": "0.40", "pay_to": "0x9c4d27e8a1f05b63d9e2708c4fb6a3510de7c982", "resource": "https://reports.example/v1/company/acme"}`

func (a *app) demo() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "demo",
		Short: "show what settlewatch does, from a payment without an answer to a person's decision",
		Long: `Write a small trace into a temporary directory and play what an agent and the person who
answers for its money would do with it: the commands and the tools are run for real, on
that directory. Nothing is dialled and nothing is left behind.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runDemo(ctx) })
}

func (a *app) runDemo(ctx context.Context) (err error) {
	temp, err := os.MkdirTemp("", "settlewatch-demo-")
	if err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "make a temporary directory")
	}
	defer func() {
		if rerr := os.RemoveAll(temp); err == nil && rerr != nil {
			err = errcode.Wrap(errcode.Bare(rerr), errcode.Internal, "remove it by hand", "remove %s", plain.Quote(temp, plain.Detail))
		}
	}()
	d := &demonstration{a: a, root: filepath.Join(temp, defaultDir), began: a.env.now()}
	if terminal(a.stdout) {
		d.pace = demoPause
	}
	if err := os.MkdirAll(filepath.Join(d.root, "events"), 0o700); err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "make a trace root")
	}
	for _, scene := range []func(*demonstration, context.Context) error{
		(*demonstration).receipts, (*demonstration).question, (*demonstration).person,
		(*demonstration).answer, (*demonstration).outcome, (*demonstration).end,
	} {
		if err := scene(d, ctx); err != nil {
			return err
		}
		if err := d.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// demonstration is one telling of the story.
type demonstration struct {
	a      *app
	root   string
	began  time.Time
	pace   time.Duration // on a terminal: what a scene is given to be looked at
	scene  int
	review string // id of the review, and the beginning of it that commands take
	short  string
}

// The width of the story: that of a terminal nobody has made larger.
const demoWidth = 80

func (d *demonstration) width() int {
	if columns := d.a.columns(); columns > 0 {
		return min(columns, demoWidth)
	}
	return demoWidth
}

// demoPause is the pace of a story that a person reads.
const demoPause = 700 * time.Millisecond

// pause shows on a terminal what there is so far. Elsewhere all of it comes at once,
// at the end.
func (d *demonstration) pause(ctx context.Context) error {
	if d.pace == 0 {
		return nil
	}
	if err := d.a.write(ctx); err != nil {
		return err
	}
	d.a.out.Reset()
	select {
	case <-time.After(d.pace):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// title begins a scene.
func (d *demonstration) title(text string) {
	d.scene++
	d.a.say("")
	for _, line := range plain.Fold(strconv.Itoa(d.scene)+". "+text, d.width()) {
		d.a.line(bold, line)
	}
}

// tell adds a paragraph of ours.
func (d *demonstration) tell(text string) {
	d.a.say("")
	for _, line := range plain.Fold(text, d.width()) {
		d.a.say("%s", line)
	}
}

// show adds what was typed and what came of it, apart from our own words. more is the
// end of what was typed, which goes on below where there is no room for it.
func (d *demonstration) show(typed, more, answer string) {
	const margin = "  "
	d.a.say("")
	if more != "" && len(margin+typed+" "+more) > d.width() {
		d.a.line(bold, margin+typed)
		for _, part := range plain.Fold(more, d.width()-2*len(margin)) {
			d.a.line(bold, margin+margin+part)
		}
	} else {
		for line := range strings.SplitSeq(strings.TrimSpace(typed+" "+more), "\n") {
			d.a.line(bold, margin+line)
		}
	}
	for line := range strings.Lines(answer) {
		d.a.line("", margin+strings.TrimSuffix(line, "\n"))
	}
}

// record lets the recorder write the events of a file, the first of them at a time.
func (d *demonstration) record(name string, first time.Time) error {
	text, err := demoTrace.ReadFile("demo/" + name)
	if err == nil {
		text, err = redated(text, first)
	}
	if err != nil {
		return errcode.Wrap(err, errcode.Internal, "report this", "read the demo's trace %s", name)
	}
	// A run is named by the time it began at.
	run := strconv.FormatInt(d.began.Add(-demoAgo).UnixMilli(), 10) + ".ndjson"
	f, err := os.OpenFile(filepath.Join(d.root, "events", run), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "write the demo's trace")
	}
	return nil
}

// demoAgo is how long ago the story begins: the payment that got no answer is then
// older than its offer's time limit, and no longer pending.
const demoAgo = 10 * time.Minute

// demoTook is longer than the last purchase took, so that none of it lies in the future.
const demoTook = 2 * time.Second

var occurred = regexp.MustCompile(`"occurred_at":"([^"]*)"`)

// redated moves events in time, as one, so that the first is at a given time.
func redated(events []byte, first time.Time) ([]byte, error) {
	const form = "2006-01-02T15:04:05.000Z"
	var by time.Duration
	var failed error
	began := false
	out := occurred.ReplaceAllFunc(events, func(member []byte) []byte {
		at, err := time.Parse(form, string(occurred.FindSubmatch(member)[1]))
		if err != nil {
			failed = err
			return member
		}
		if !began {
			began, by = true, first.Sub(at)
		}
		return []byte(`"occurred_at":"` + at.Add(by).UTC().Format(form) + `"`)
	})
	return out, failed
}

// run does what a person would get by typing a command, on the demo's root, and gives
// what it prints.
func (d *demonstration) run(ctx context.Context, stdin string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	env := d.a.env
	env.sandbox = nil // the server ends, and this process goes on
	sub := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, env: env, width: d.width() - 2}
	root := sub.root()
	root.SetArgs(append(args, "--dir", d.root))
	err := sub.execute(ctx, root)
	var s status
	if err != nil && !errors.As(err, &s) {
		return "", err
	}
	// The one thing that is left out of what is shown; the story says so.
	return strings.ReplaceAll(out.String()+sub.out.String(), " --dir "+shellWord(d.root), ""), nil
}

// command shows a command as a person types it, and its answer.
func (d *demonstration) command(ctx context.Context, args ...string) error {
	answer, err := d.run(ctx, "", args...)
	if err == nil {
		d.show(d.typed(args), "", answer)
	}
	return err
}

// part is command of whose answer only what follows a line is shown, and that there is
// more.
func (d *demonstration) part(ctx context.Context, from string, args ...string) error {
	answer, err := d.run(ctx, "", args...)
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(answer, "\n"+from)
	if !found {
		return errcode.New(errcode.Internal, "report this", "find %q in what %s prints", from, strings.Join(args, " "))
	}
	d.show(d.typed(args), "", "...\n"+from+rest)
	return nil
}

// typed is a command as a person types it, in two lines where one is too long.
func (d *demonstration) typed(args []string) string {
	line := "$ settlewatch"
	for i, arg := range args {
		if arg == "--note" && i > 0 {
			line += " \\\n     "
		}
		line += " " + shellWord(arg)
	}
	if long := strings.Replace(line, " \\\n     ", "", 1); len(long)+2 <= d.width() {
		return long
	}
	return line
}

// tool is a tool of the agent's server as the agent calls it: the answer's text, but
// for what follows a line that begins as until says, and in answer what its structured
// content says.
func (d *demonstration) tool(ctx context.Context, name, arguments, until string, answer any) error {
	requests := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"demo","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}
`
	lines, err := d.run(ctx, requests, "serve")
	if err != nil {
		return err
	}
	for line := range strings.Lines(lines) {
		var reply struct {
			ID     int
			Result struct {
				IsError           bool
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(line), &reply); err != nil || reply.ID != 2 {
			continue
		}
		r := reply.Result
		if r.IsError || len(r.Content) != 1 || json.Unmarshal(r.StructuredContent, answer) != nil {
			break
		}
		const mark = "| "
		var text []string
		for line := range strings.SplitSeq(r.Content[0].Text, "\n") {
			if until != "" && strings.HasPrefix(line, until) {
				text = append(text, mark+"...")
				break
			}
			for _, part := range plain.Fold(plain.Clean(line, plain.Explanation), d.width()-4) {
				text = append(text, mark+part)
			}
		}
		d.show("> "+name, arguments, strings.Join(text, "\n"))
		return nil
	}
	return errcode.New(errcode.Internal, "report this", "call %s: %s", name, plain.Clean(lines, plain.Explanation))
}

// ask lets the agent ask whether it may pay for the report. The story goes on only
// with the answer it is about. Of that nothing is shown from a line that begins as
// until says.
func (d *demonstration) ask(ctx context.Context, want, until string) error {
	var verdict struct {
		Decision string
		ReviewID string `json:"review_id"`
	}
	if err := d.tool(ctx, "check_before_pay", demoQuestion, until, &verdict); err != nil {
		return err
	}
	if verdict.Decision != want {
		return errcode.New(errcode.Internal, "report this with what was printed", "play the demo: the guard answered %s where %s was due", plain.Quote(verdict.Decision, plain.Detail), want)
	}
	if verdict.ReviewID != "" {
		d.review = verdict.ReviewID
		d.short = strings.TrimPrefix(d.review, "r-")
		d.short = d.short[:min(leastBeginning, len(d.short))]
	}
	return nil
}

func (d *demonstration) receipts(ctx context.Context) error {
	if err := d.record("1-weather.ndjson", d.began.Add(-demoAgo)); err != nil {
		return err
	}
	if err := d.record("2-report.ndjson", d.began.Add(-demoAgo+4*time.Minute)); err != nil {
		return err
	}
	d.tell(`This is settlewatch in one story. All of it is run for real, on a trace in a temporary directory. A line with $ is a command you could type (here it also has --dir, to find that directory), one with > is what an AI agent calls over MCP. No money moves, nobody is dialled, and nothing is left behind.`)
	d.title("What became of the money")
	d.tell(`An agent bought a weather forecast and a company report, and paid both over x402. While it did, its recorder wrote each step down, one JSON line an event, into .trace/events. That is all settlewatch reads:`)
	if err := d.command(ctx, "list"); err != nil {
		return err
	}
	d.tell(`(Amounts here are in the smallest unit of the asset: 400000 are 0.40 USDC.) The forecast's receipt is full: every stage that is required was seen, the settlement too.`)
	if err := d.part(ctx, "STAGE", "receipt", demoForecast); err != nil {
		return err
	}
	d.tell(`The report's is partial, and of the dangerous kind: the payment was signed and sent, then no answer came. Whether the money moved, nobody on this side can know. settlewatch says "unknown" and never guesses.`)
	return d.part(ctx, "STAGE", "receipt", demoReport)
}

func (d *demonstration) question(ctx context.Context) error {
	d.title("The agent asks before it pays again")
	d.tell(`It still needs the report, and an agent left to itself would now simply pay again. This one has been told to ask first (you can ask the same with settlewatch check):`)
	if err := d.ask(ctx, "review", ""); err != nil {
		return err
	}
	d.tell(`Not allowed, not forbidden: a person has to decide, and the agent is told so, with the reasons and the operation they rest on. It cannot decide itself: no tool does that.`)
	return nil
}

func (d *demonstration) person(ctx context.Context) error {
	d.title("A person looks at it and says no")
	d.tell(`Whoever answers for the money sees the whole question, and of each fact whether the agent typed it or the trace shows it:`)
	if err := d.command(ctx, "review", "show", d.short); err != nil {
		return err
	}
	d.tell(`Nobody knows yet what became of the first 0.40, so the answer is no, for now:`)
	return d.command(ctx, "review", "reject", d.short, "--note", "first find out what became of the payment that got no answer")
}

func (d *demonstration) answer(ctx context.Context) error {
	d.title("The agent reads why, and asking again does not help")
	const openPartial = "- open_partial" // the reasons that were shown already begin with it
	var view struct{ Status string }
	if err := d.tool(ctx, "get_review_status", `{"review_id": "`+d.review+`"}`, openPartial, &view); err != nil {
		return err
	}
	if err := d.ask(ctx, "block", openPartial); err != nil {
		return err
	}
	d.tell(`A rejection holds for a day, or until a person takes it back. Meanwhile other payments to the same seller are for a person as well.`)
	return nil
}

func (d *demonstration) outcome(ctx context.Context) error {
	d.title("The person finds out what happened")
	d.tell(`The seller looked: the payment never reached them, and what was signed has expired, so the money did not move. The person puts that on record and takes the rejection back. The receipt does not change; what is known beside it does:`)
	if err := d.command(ctx, "resolve", "latest", demoReport, "--as", "failed", "--note", "the seller never got it, and it has expired"); err != nil {
		return err
	}
	if err := d.command(ctx, "review", "reopen", d.short); err != nil {
		return err
	}
	d.tell(`The agent asks once more. Nothing speaks against the payment now:`)
	if err := d.ask(ctx, "allow", ""); err != nil {
		return err
	}
	if err := d.record("3-report-again.ndjson", d.a.env.now().Add(-demoTook)); err != nil {
		return err
	}
	d.tell(`It pays, once, and gets its report:`)
	if err := d.command(ctx, "list"); err != nil {
		return err
	}
	d.tell(`What was asked, answered and decided stands in .trace/guard/decisions.ndjson, every line chained to the one before.`)
	return nil
}

func (d *demonstration) end(context.Context) error {
	d.tell(`That is all there is to it. The directory of this story is gone when this ends. With an agent of your own:`)
	d.a.say("")
	for _, c := range [][2]string{
		{"settlewatch install", "what to add to your agent's host, so that it asks"},
		{"settlewatch list", "what became of its payments (--dir names its .trace)"},
		{"settlewatch review list", "what waits for you"},
	} {
		if line := fmt.Sprintf("  %-25s %s", c[0], c[1]); plain.Width(line) <= d.width() {
			d.a.say("%s", line)
			continue
		}
		d.a.say("  %s", c[0])
		d.a.put("", "    ", c[1])
	}
	return nil
}
