package market

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// listNames are the members a list may stand under. Three shapes are in
// circulation (market contract, section 3).
var listNames = []string{"items", "instances", "additions", "rows"}

// document asks an instance for a document, which must be an object, and says when it
// came.
func (c *Client) document(ctx context.Context, in *instance, path string, query url.Values) (root jsjson.Node, at time.Time, err error) {
	reply, err := c.fetch.get(ctx, in, path, query)
	if err != nil {
		return root, at, err
	}
	doc := new(jsjson.Doc)
	if err := doc.Parse(reply.body); err != nil {
		return root, at, misread(in, "it is not JSON")
	}
	if doc.Root().Kind() != jsjson.Object {
		return root, at, misread(in, "it is not an object")
	}
	return doc.Root(), reply.at, nil
}

func misread(in *instance, why string) error {
	return errcode.New(errcode.Market, "have a person look at the instance: it may be no order-listing API, or one of another version", "read the answer of the instance %s: %s", in.origin, why)
}

// list is the list of a reply: the first that is there. A reply without one is an
// error and never an empty list, else a renamed member would look like an empty
// market.
func list(in *instance, root jsjson.Node) (jsjson.Node, error) {
	for _, name := range listNames {
		switch n := root.Get(name); n.Kind() {
		case jsjson.Absent:
		case jsjson.Array:
			return n, nil
		default:
			return jsjson.Node{}, misread(in, "its list "+name+" is no list")
		}
	}
	return jsjson.Node{}, misread(in, "it has none of the lists "+strings.Join(listNames, ", "))
}

// form is what a text has to look like. It is made when the first text is held to it,
// since most processes never ask a market.
type form func() *regexp.Regexp

func newForm(text string) form {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

func (f form) matches(text string) bool { return f().MatchString(text) }

// Texts that stand for something are of a closed form, or are not there.
var (
	cursorForm   = newForm(`^[A-Za-z0-9._~+/=-]{1,512}$`)
	accountForm  = newForm(`^[a-z][a-z0-9.-]{1,14}[a-z0-9]$`)
	permlinkForm = newForm(`^[a-z0-9]+(?:-[a-z0-9]+)*$`)
	tickerForm   = newForm(`^[A-Z][A-Z0-9]{1,15}$`)
	fiatForm     = newForm(`^[A-Z]{1,8}$`)
	wordForm     = newForm(`^[a-z][a-z0-9_]{0,31}$`)
	slugForm     = newForm(`^(@instance:)?[a-z][a-z0-9_]{0,31}$`)
	numberForm   = newForm(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$`)
)

// maxPermlink is how long a permlink may be on the chain.
const maxPermlink = 32

// cursorOf is where a list goes on, "" at its end. unread says that it goes on at
// what could be anything but a cursor, which is not its end.
func cursorOf(root jsjson.Node) (cursor string, unread bool) {
	n := root.Get("next_cursor")
	if text := textOf(n); cursorForm.matches(text) {
		return text, false
	}
	switch n.Kind() {
	case jsjson.Absent, jsjson.Null:
		return "", false
	case jsjson.String:
		return "", len(n.Text()) > 0
	default:
		return "", true
	}
}

// textOf is the text of a node as it came, "" for other kinds.
func textOf(n jsjson.Node) string {
	if n.Kind() != jsjson.String {
		return ""
	}
	return string(n.Text())
}

// fields reads the members of one object of a stranger. It notes each that was not
// as it should be: a value that was left out, a text that had to be cleaned.
type fields struct {
	n       jsjson.Node
	changed []string
}

func (f *fields) note(name string) {
	if !slices.Contains(f.changed, name) {
		f.changed = append(f.changed, name)
	}
}

// there is a member that says something.
func (f *fields) there(name string) (jsjson.Node, bool) {
	n := f.n.Get(name)
	return n, n.Kind() != jsjson.Absent && n.Kind() != jsjson.Null
}

// text is a free text, cleaned and cut.
func (f *fields) text(name string, most int) string {
	n, ok := f.there(name)
	if !ok {
		return ""
	}
	if n.Kind() != jsjson.String {
		f.note(name)
		return ""
	}
	return f.cleaned(name, string(n.Text()), most)
}

// markdown names the texts that are laid out with breaks. There they become spaces,
// which says nothing about who wrote them.
var (
	markdown = []string{"terms"}
	breaks   = strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ")
)

func (f *fields) cleaned(name, text string, most int) string {
	clean := plain.Clean(text, most)
	if slices.Contains(markdown, name) {
		text = breaks.Replace(text)
	}
	if clean != text {
		f.note(name)
	}
	return clean
}

// form is a text of a closed form, or nothing.
func (f *fields) form(name string, of form) string {
	n, ok := f.there(name)
	if !ok {
		return ""
	}
	text := textOf(n)
	if !of.matches(text) {
		f.note(name)
		return ""
	}
	return text
}

// whole is a whole number of things, nil where there is none.
func (f *fields) whole(name string) *int64 {
	n, ok := f.there(name)
	if !ok {
		return nil
	}
	if text := string(n.Raw()); n.Kind() == jsjson.Number && digits(text) {
		if v, err := strconv.ParseInt(text, 10, 53); err == nil {
			return &v
		}
	}
	f.note(name)
	return nil
}

// flag is true or false, nil where there is neither.
func (f *fields) flag(name string) *bool {
	n, ok := f.there(name)
	if !ok {
		return nil
	}
	if n.Kind() != jsjson.Bool {
		f.note(name)
		return nil
	}
	v := n.Bool()
	return &v
}

// Years an instant can be of. What lies before is the zero of some program, and
// would read as no end at all; what lies behind has no spelling of this form.
const (
	firstYear = 1970
	lastYear  = 9999
)

// time is an instant in one spelling, "" where there is none.
func (f *fields) time(name string) string {
	n, ok := f.there(name)
	if !ok {
		return ""
	}
	at, err := time.Parse(time.RFC3339Nano, textOf(n))
	if at = at.UTC(); err != nil || at.Year() < firstYear || at.Year() > lastYear {
		f.note(name)
		return ""
	}
	return at.Format("2006-01-02T15:04:05.000Z")
}

// decimal is an exact number within bounds as decimal text, "" where there is none.
// Older servers write numbers as texts.
func (f *fields) decimal(name string, least, most string) string {
	n, ok := f.there(name)
	if !ok {
		return ""
	}
	text := textOf(n)
	if n.Kind() == jsjson.Number {
		text = string(n.Raw())
	}
	exact, ok := decimal(text)
	if !ok || compare(exact, least) < 0 || compare(exact, most) > 0 {
		f.note(name)
		return ""
	}
	return exact
}
