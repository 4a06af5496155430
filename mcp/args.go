package mcp

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// maxText is the most bytes a text in a tool call may have, maxObject those of an
// object: offers come from sellers, whole.
const (
	maxText   = 2048
	maxObject = 64 << 10
)

//go:embed schemas/*.json
var schemaFiles embed.FS

// schema is one embedded JSON Schema: what clients are shown and what arguments
// are held to are the same text.
type schema struct {
	source  []byte
	members []string // of the top-level object, in the order of the file

	once func() (*jsonschema.Schema, error)
}

// compiled waits until the schema is: clients are shown its text before that. One that
// does not compile is a defect, since tests compile all of them.
func (s *schema) compiled() *jsonschema.Schema {
	c, err := s.once()
	if err != nil {
		panic(err)
	}
	return c
}

// loadSchema reads one schema and fits it to the transport.
func loadSchema(file string, over transport) (*schema, error) {
	source, err := schemaFiles.ReadFile("schemas/" + file)
	if err != nil {
		return nil, fmt.Errorf("read schema %s: %w", file, err)
	}
	source = bytes.ReplaceAll(source, fmt.Appendf(nil, `"maximum": %d`, longestWait), fmt.Appendf(nil, `"maximum": %d`, over.maxWait))
	return newSchema(file, source)
}

// with is the schema with one more member, which a file of its own describes: it is
// there only where another toolset is. The members are the end of a compact schema.
func (s *schema) with(file string) (*schema, error) {
	member, err := schemaFiles.ReadFile("schemas/" + file)
	if err != nil {
		return nil, fmt.Errorf("read schema %s: %w", file, err)
	}
	before, ok := bytes.CutSuffix(s.source, []byte("}}"))
	inner := bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(member), []byte("{")), []byte("}"))
	if !ok {
		return nil, fmt.Errorf("extend a schema by %s: its members are not at its end", file)
	}
	return newSchema(file, slices.Concat(before, []byte(","), inner, []byte("}}")))
}

func newSchema(file string, source []byte) (*schema, error) {
	var doc jsjson.Doc
	if err := doc.Parse(source); err != nil {
		return nil, fmt.Errorf("parse schema %s: %w", file, err)
	}
	s := &schema{source: doc.Root().Append(nil, 0, 0), once: sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(file, source) })}
	for key := range doc.Root().Get("properties").Members() {
		s.members = append(s.members, string(key.Text()))
	}
	return s, nil
}

func compile(file string, source []byte) (*jsonschema.Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		return nil, fmt.Errorf("parse schema %s: %w", file, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///"+file, parsed); err != nil {
		return nil, fmt.Errorf("read schema %s: %w", file, err)
	}
	compiled, err := c.Compile("mem:///" + file)
	if err != nil {
		return nil, fmt.Errorf("compile schema %s: %w", file, err)
	}
	return compiled, nil
}

// arguments are checked arguments of a tool call.
type arguments struct {
	root jsjson.Node
}

// text is a text member as WTF-8, "" when absent.
func (a arguments) text(name string) string { return string(a.root.Get(name).Text()) }

// flag is a boolean member.
func (a arguments) flag(name string, absent bool) bool {
	if n := a.root.Get(name); n.Kind() == jsjson.Bool {
		return n.Bool()
	}
	return absent
}

// number is a whole-number member; the schema has bounded it.
func (a arguments) number(name string, absent int) int {
	if n := a.root.Get(name); n.Kind() == jsjson.Number {
		return int(n.Float())
	}
	return absent
}

// check holds raw arguments to the schema and says in this product's words what
// is wrong with them. The text is read here and not by the library because a
// decoded value no longer shows repeated keys.
func (s *schema) check(raw []byte) (arguments, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	doc := new(jsjson.Doc)
	if err := doc.Parse(raw); err != nil {
		return arguments{}, s.wrong("the arguments are not JSON: %v", err)
	}
	root := doc.Root()
	if root.Kind() != jsjson.Object {
		return arguments{}, s.wrong("arguments must be an object, not %s", kindName(root.Kind()))
	}
	for key, value := range root.Members() {
		if n := len(value.Raw()); n > maxObject && (value.Kind() == jsjson.Object || value.Kind() == jsjson.Array) {
			return arguments{}, s.tooLong(memberName(string(key.Text())), n, maxObject)
		}
	}
	value, err := s.decode(root, "")
	if err != nil {
		return arguments{}, err
	}
	if err := s.compiled().Validate(value); err != nil {
		return arguments{}, s.explain(err, root)
	}
	return arguments{root}, nil
}

// wrong is an E_INPUT whose hint names the members there are.
func (s *schema) wrong(format string, args ...any) error {
	hint := "call it without arguments"
	if len(s.members) > 0 {
		hint = "use " + strings.Join(s.members, ", ")
	}
	if required := s.compiled().Required; len(required) > 0 {
		hint += " (needed: " + strings.Join(required, ", ") + ")"
	}
	return errcode.New(errcode.Input, hint, format, args...)
}

// tooLong refuses a value over a cap.
func (s *schema) tooLong(at string, n, most int) error {
	const format = "%s is %d bytes long, the most is %d"
	if s.compiled().Properties["offer"] != nil && strings.HasPrefix(at, `"offer"`) {
		// What a seller sends cannot be shortened, but most of it is not needed.
		return errcode.New(errcode.Input, "leave it out: of an offer, payTo, amount, asset, network and scheme are judged", format, at, n, most)
	}
	return s.wrong(format, at, n, most)
}

// longest is how many bytes a text may have. What a tool will run with is passed on
// whole, whatever it holds.
func (s *schema) longest(at string) int {
	for _, open := range []string{`"call"."arguments"`, `"args"`, `"bound_args"`, `"value"`} {
		if strings.HasPrefix(at, open) {
			return maxObject
		}
	}
	return maxText
}

// decode makes the value the schema library validates. It refuses repeated keys
// at any depth, texts over the cap and numbers no double can hold.
func (s *schema) decode(n jsjson.Node, at string) (any, error) {
	switch n.Kind() {
	case jsjson.Null:
		return nil, nil
	case jsjson.Bool:
		return n.Bool(), nil
	case jsjson.Number:
		f := n.Float()
		if math.IsInf(f, 0) {
			return nil, s.wrong("%s is too large a number", at)
		}
		return f, nil
	case jsjson.String:
		text := n.Text()
		if most := s.longest(at); len(text) > most {
			return nil, s.tooLong(at, len(text), most)
		}
		return string(text), nil
	case jsjson.Array:
		list := []any{}
		for e := range n.Elements() {
			v, err := s.decode(e, fmt.Sprintf("%s[%d]", at, len(list)))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	default:
		object := map[string]any{}
		for key, value := range n.Members() {
			name := string(key.Text())
			inner := memberName(name)
			if at != "" {
				inner = at + "." + inner
			}
			if _, seen := object[name]; seen {
				return nil, s.wrong("%s is given more than once", inner)
			}
			v, err := s.decode(value, inner)
			if err != nil {
				return nil, err
			}
			object[name] = v
		}
		return object, nil
	}
}

// memberName is how a member is named in a refusal. The caller made the name up,
// so it is shown cleaned and short.
func memberName(name string) string { return plain.Quote(name, 64) }

// explain words the first thing the schema library found. It reports in map
// order; the order here is fixed so that the same call has the same answer.
func (s *schema) explain(err error, root jsjson.Node) error {
	var top *jsonschema.ValidationError
	if !errors.As(err, &top) {
		return s.wrong("the arguments do not fit")
	}
	var leaves []*jsonschema.ValidationError
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			leaves = append(leaves, e)
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(top)
	slices.SortStableFunc(leaves, func(a, b *jsonschema.ValidationError) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(strings.Join(a.InstanceLocation, "/"), strings.Join(b.InstanceLocation, "/"))
	})
	leaf := leaves[0]
	var path []string
	for _, p := range leaf.InstanceLocation {
		path = append(path, memberName(p))
	}
	at := strings.Join(path, ".")

	switch k := leaf.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		unknown := slices.Clone(k.Properties)
		slices.Sort(unknown)
		return s.wrong("there is no member %s", within(at, memberName(unknown[0])))
	case *kind.Required:
		return s.wrong("%s is missing", within(at, memberName(k.Missing[0])))
	case *kind.Type:
		return s.mistyped(leaf, k, at, root)
	case *kind.Enum:
		return s.member(leaf, "%s is none of the values it can have", at)
	case *kind.MinLength:
		if k.Got == 0 {
			return s.member(leaf, "%s is empty", at)
		}
		return s.member(leaf, "%s is too short", at)
	case *kind.MaxLength:
		return s.member(leaf, "%s is too long", at)
	case *kind.Pattern:
		return s.member(leaf, "%s does not have the form it must have", at)
	case *kind.Minimum:
		return s.member(leaf, "%s is too small", at)
	case *kind.Maximum:
		return s.member(leaf, "%s is too large", at)
	default:
		return s.member(leaf, "%s does not fit", at)
	}
}

// rank orders findings: what is there and should not be, then what is missing,
// then what is wrong.
func rank(e *jsonschema.ValidationError) int {
	switch e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return 0
	case *kind.Required:
		return 1
	default:
		return 2
	}
}

func within(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// member is an E_INPUT whose hint says what the member at fault takes.
func (s *schema) member(leaf *jsonschema.ValidationError, format string, args ...any) error {
	if p := s.at(leaf); p != nil {
		return errcode.New(errcode.Input, takes(p), format, args...)
	}
	return s.wrong(format, args...)
}

// at is the schema of the member at fault, nil when it is none of a member.
func (s *schema) at(leaf *jsonschema.ValidationError) *jsonschema.Schema {
	if len(leaf.InstanceLocation) == 0 {
		return nil
	}
	p := s.compiled()
	for _, name := range leaf.InstanceLocation {
		if p = p.Properties[name]; p == nil {
			return nil
		}
	}
	return p
}

// mistyped words a value of another type than the member takes. Run ids look
// like numbers, and a number that JSON gave no quotes is shown with them.
func (s *schema) mistyped(leaf *jsonschema.ValidationError, k *kind.Type, at string, root jsjson.Node) error {
	value := root
	for _, name := range leaf.InstanceLocation {
		value = value.Get(name)
	}
	const format = "%s must be %s, not %s"
	want := strings.Join(typeNames(k.Want), " or ")
	if p := s.at(leaf); p != nil && p.Enum == nil && slices.Contains(k.Want, "string") && value.Kind() == jsjson.Number {
		raw, amount := value.Raw(), isAmount(leaf.InstanceLocation)
		digits := "0123456789"
		hint := "put it in quotes: "
		if amount {
			digits += "."
			hint = "amounts are text, " + hint
		}
		if len(raw) <= shortText && len(bytes.Trim(raw, digits)) == 0 {
			return errcode.New(errcode.Input, hint+`"`+string(raw)+`"`, format, at, want, given(value, k))
		}
		if amount {
			return errcode.New(errcode.Input, "amounts are "+takes(p), format, at, want, given(value, k))
		}
	}
	return s.member(leaf, format, at, want, given(value, k))
}

// isAmount reports whether a member is money, which is never a JSON number (guard
// contract, section 1): a number has been rounded by whoever read it.
func isAmount(path []string) bool {
	return len(path) > 0 && slices.Contains([]string{"amount", "maxAmountRequired"}, path[len(path)-1])
}

// given says what stands where another type is due.
func given(value jsjson.Node, k *kind.Type) string {
	switch value.Kind() {
	case jsjson.Bool:
		return strconv.FormatBool(value.Bool())
	case jsjson.Number:
		number := plain.Clean(string(value.Raw()), shortText)
		if slices.Contains(k.Want, "integer") || slices.Contains(k.Want, "number") {
			return number
		}
		return "the number " + number
	case jsjson.String:
		return "the text " + plain.Quote(string(value.Text()), shortText)
	default:
		return typeName(k.Got)
	}
}

// takes says in words what values a schema allows.
func takes(p *jsonschema.Schema) string {
	if p.Enum != nil {
		var values []string
		for _, v := range p.Enum.Values {
			values = append(values, fmt.Sprint(v))
		}
		return "one of " + strings.Join(values, ", ")
	}
	var parts []string
	if p.Types != nil {
		parts = typeNames(p.Types.ToStrings())
	}
	text := strings.Join(parts, " or ")
	if p.Minimum != nil && p.Maximum != nil {
		text += " from " + p.Minimum.RatString() + " to " + p.Maximum.RatString()
	}
	if p.Pattern != nil {
		text += " that matches " + p.Pattern.String()
	}
	if p.MaxLength != nil {
		low := "of at most "
		if p.MinLength != nil && *p.MinLength > 0 {
			low = "of " + strconv.Itoa(*p.MinLength) + " to "
		}
		text += " " + low + strconv.Itoa(*p.MaxLength) + " characters"
	}
	if len(p.Examples) > 0 {
		text += fmt.Sprintf(", such as %q", p.Examples[0])
	}
	return text
}

var typeWords = map[string]string{
	"string":  "text",
	"integer": "a whole number",
	"number":  "a number",
	"boolean": "true or false",
	"object":  "an object",
	"array":   "a list",
	"null":    "null",
}

func typeName(t string) string {
	if w, ok := typeWords[t]; ok {
		return w
	}
	return t
}

func typeNames(types []string) (words []string) {
	for _, t := range types {
		words = append(words, typeName(t))
	}
	return words
}

func kindName(k jsjson.Kind) string {
	switch k {
	case jsjson.Null:
		return "null"
	case jsjson.Bool:
		return "true or false"
	case jsjson.Number:
		return "a number"
	case jsjson.String:
		return "text"
	default:
		return "a list"
	}
}
