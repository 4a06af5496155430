package assemble

import (
	"errors"
	"fmt"
	"math"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/assemble/yaml12"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// A Template says which events an operation should show. Texts are WTF-8.
type Template struct {
	Name       string  // what the file declares; it need not be the file's name
	Version    float64 // finite
	Stages     []Stage // at least one; ids differ
	Exceptions []string

	readings map[string]*reading // made by ParseTemplate; nil in a Template made by hand
}

// A Stage is one step of an operation, confirmed by any of its witnesses.
type Stage struct {
	ID             string
	Required       bool
	Match          []Witness // at least one
	Explanation    string    // what the stage's absence means
	HasExplanation bool      // an empty explanation is one
}

// A Witness is an event type that confirms a stage, when the role of the event
// is Role; "" stands for any role, and for none.
type Witness struct{ Event, Role string }

// TemplateError is the first check a template failed.
type TemplateError struct {
	Line   int    // from 1; 0 when unknown
	Stage  string // id of the stage, or its number ("stage 3"), or ""
	Reason string // lower case, without a full stop
}

// Error names the line and the stage.
func (e *TemplateError) Error() string {
	s := e.Reason
	if e.Stage != "" {
		s = e.Stage + ": " + s
	}
	if e.Line > 0 {
		s = fmt.Sprintf("line %d: %s", e.Line, s)
	}
	return s
}

// ParseTemplate reads a template from YAML (which JSON is a part of) and checks
// it in the order of the trace contract, section 4: the first failure is the one
// reported. Warnings are those of the YAML reader. The error is a
// *TemplateError.
func ParseTemplate(src []byte) (*Template, []string, error) {
	root, warnings, err := yaml12.Parse(jsjson.ToWTF8(nil, src))
	if err != nil {
		e := &TemplateError{Reason: err.Error()}
		if where := (*yaml12.Error)(nil); errors.As(err, &where) {
			e.Line, e.Reason = where.Line, where.Reason
		}
		return nil, nil, e
	}
	t, failure := readTemplate(root)
	if failure != nil {
		return nil, nil, failure
	}
	t.readings = t.read()
	return t, warnings, nil
}

func readTemplate(root *yaml12.Node) (*Template, *TemplateError) {
	if root == nil {
		return nil, &TemplateError{Reason: "the template is empty"}
	}
	if root.Kind != yaml12.Mapping {
		return nil, &TemplateError{Line: root.Line, Reason: "a template is a mapping of template, version, stages and exceptions"}
	}
	c := check{at: root}
	t := &Template{}
	t.Name = c.text(root, "template")
	t.Version = c.number(root, "version")
	seen := map[string]bool{}
	for i, n := range c.list(root, "stages") {
		c.stage = fmt.Sprintf("stage %d", i+1)
		t.Stages = append(t.Stages, c.readStage(n, seen))
	}
	c.stage = ""
	if n := root.Get("exceptions"); n != nil {
		t.Exceptions = c.texts(n)
	}
	return t, c.err
}

// A check reads values of a template and keeps the first failure; after it,
// whatever else it reads is of no account.
type check struct {
	at    *yaml12.Node // the mapping being read
	stage string
	err   *TemplateError
}

func (c *check) fail(n *yaml12.Node, reason string, args ...any) {
	if c.err == nil {
		if n == nil {
			n = c.at
		}
		c.err = &TemplateError{Line: n.Line, Stage: c.stage, Reason: fmt.Sprintf(reason, args...)}
	}
}

// text is the member of that name, which must be text with something in it.
func (c *check) text(n *yaml12.Node, name string) string {
	v := n.Get(name)
	if v == nil {
		c.fail(nil, "%s is missing", name)
		return ""
	}
	s, ok := scalarText(v)
	if !ok || s == "" {
		c.fail(v, "%s must be non-empty text", name)
	}
	return s
}

func scalarText(n *yaml12.Node) (string, bool) {
	if n.Kind != yaml12.Scalar {
		return "", false
	}
	s, ok := n.Value.(string)
	return s, ok
}

func (c *check) number(n *yaml12.Node, name string) float64 {
	v := n.Get(name)
	if v == nil {
		c.fail(nil, "%s is missing", name)
		return 0
	}
	f, ok := v.Value.(float64)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		c.fail(v, "%s must be a finite number", name)
	}
	return f
}

func (c *check) list(n *yaml12.Node, name string) []*yaml12.Node {
	v := n.Get(name)
	switch {
	case v == nil:
		c.fail(nil, "%s is missing", name)
		return nil
	case v.Kind != yaml12.Sequence || len(v.Items) == 0:
		c.fail(v, "%s must be a non-empty list", name)
		return nil
	}
	return v.Items
}

func (c *check) texts(n *yaml12.Node) []string {
	if n.Kind != yaml12.Sequence {
		c.fail(n, "exceptions must be a list of non-empty text")
		return nil
	}
	var all []string
	for _, item := range n.Items {
		s, ok := scalarText(item)
		if !ok || s == "" {
			c.fail(item, "exceptions must be a list of non-empty text")
		}
		all = append(all, s)
	}
	return all
}

func (c *check) readStage(n *yaml12.Node, seen map[string]bool) Stage {
	var s Stage
	c.at = n
	if n.Kind != yaml12.Mapping {
		c.fail(n, "a stage is a mapping")
		return s
	}
	s.ID = c.text(n, "id")
	if s.ID != "" {
		c.stage = "stage " + plain.Quote(s.ID, 80)
	}
	if seen[s.ID] {
		c.fail(n.Get("id"), "two stages share this id")
	}
	seen[s.ID] = true
	if v := n.Get("required"); v == nil {
		c.fail(nil, "required is missing")
	} else if b, ok := v.Value.(bool); ok {
		s.Required = b
	} else {
		c.fail(v, "required must be true or false")
	}
	for _, m := range c.list(n, "match") {
		s.Match = append(s.Match, c.readWitness(m))
	}
	c.at = n
	if v := n.Get("missing_explanation"); v != nil {
		s.Explanation, s.HasExplanation = scalarText(v)
		if !s.HasExplanation {
			c.fail(v, "missing_explanation must be text")
		}
	}
	return s
}

func (c *check) readWitness(n *yaml12.Node) Witness {
	var w Witness
	c.at = n
	if n.Kind != yaml12.Mapping {
		c.fail(n, "an entry of match is a mapping of event and role")
		return w
	}
	w.Event = c.text(n, "event")
	if n.Get("role") != nil {
		w.Role = c.text(n, "role")
	}
	return w
}
