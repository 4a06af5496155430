package assemble

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// DefaultTemplate is the reference used where none is given.
const DefaultTemplate = "x402-buyer"

//go:embed templates/*.yaml
var builtins embed.FS

// Builtins lists the names of the templates that come with the program, in
// alphabetical order.
func Builtins() []string {
	return []string{"escrow-arc", "x402-buyer", "x402-facilitator", "x402-seller"}
}

// Builtin is the YAML text of a template that comes with the program, nil when
// there is none of that name.
func Builtin(name string) []byte {
	src, err := builtins.ReadFile("templates/" + name + ".yaml")
	if err != nil {
		return nil
	}
	return src
}

// Shipped is a template that comes with the program, nil when there is none of that
// name. It is read once and shared: nothing of it may be changed.
func Shipped(name string) *Template {
	if t, ok := shipped.Load(name); ok {
		return t.(*Template)
	}
	src := Builtin(name)
	if src == nil {
		return nil
	}
	t, _, err := ParseTemplate(src)
	if err != nil {
		panic(fmt.Sprintf("the template %s that comes with the program is not valid: %v", name, err)) // tests read them all
	}
	shipped.Store(name, t)
	return t
}

var shipped sync.Map

// Origin says where a template came from.
type Origin string

// The origins, as `build --json` spells them.
const (
	OriginBuiltin Origin = "builtin"
	OriginLocal   Origin = "local"
	OriginFile    Origin = "file"
)

// Resolved is a template that a reference led to.
type Resolved struct {
	*Template
	Ref      string // the reference as given
	Path     string // the file; "builtin:<name>" for one that comes with the program
	Origin   Origin
	Warnings []string // of the YAML reader
}

// Library finds templates by name: first the project's own, then those that
// come with the program.
type Library struct {
	// Read reads a file of the local templates directory by its bare name
	// ("shop.yaml"). It answers fs.ErrNotExist when the file is absent, and only
	// then. A nil Read is an empty directory.
	Read func(name string) ([]byte, error)
	Dir  string // the directory, for messages and Resolved.Path
}

// Resolve finds and reads the template that ref names (trace contract, section
// 4, "Resolution"). Any ref that is no bare name is a path, read by readFile;
// with a nil readFile paths are refused. A local file that is broken or cannot
// be read is an error and never a reason to take the built-in of its name. The
// error is an *errcode.Error.
func (l Library) Resolve(ref string, readFile func(path string) ([]byte, error)) (*Resolved, error) {
	var src []byte
	r := &Resolved{Ref: ref}
	shown := plain.Quote(ref, plain.Detail)
	if IsName(ref) {
		file := ref + ".yaml"
		err := fs.ErrNotExist
		if l.Read != nil {
			src, err = l.Read(file)
		}
		switch {
		case err == nil:
			r.Origin, r.Path = OriginLocal, filepath.Join(l.Dir, file)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, errcode.Wrap(err, errcode.TemplateInvalid, "repair or remove the file; a built-in template never stands in for a local one",
				"could not read the local template %s", shown)
		default:
			if r.Template = Shipped(ref); r.Template == nil {
				return nil, notFound(shown)
			}
			r.Origin, r.Path = OriginBuiltin, "builtin:"+ref
			return r, nil
		}
	} else {
		if ref == "" {
			return nil, notFound(shown)
		}
		if readFile == nil {
			return nil, errcode.New(errcode.TemplateNotFound, "use a bare name: "+known, "%s is not the name of a template, and paths are not read here", shown)
		}
		var err error
		switch src, err = readFile(ref); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, errcode.New(errcode.TemplateNotFound, "check the path; without a slash or a dot a reference is a name: "+known, "no template file %s", shown)
		case err != nil:
			return nil, errcode.Wrap(err, errcode.TemplateInvalid, "check that it is a readable file", "could not read the template file %s", shown)
		}
		r.Origin, r.Path = OriginFile, ref
	}
	t, warnings, err := ParseTemplate(src)
	if err != nil {
		return nil, errcode.Wrap(err, errcode.TemplateInvalid, "correct the file at that line", "the template %s is not valid", shown)
	}
	r.Template, r.Warnings = t, warnings
	return r, nil
}

var known = "one of " + strings.Join(Builtins(), ", ") + ", or a file of your templates directory without its .yaml"

func notFound(shown string) error {
	return errcode.New(errcode.TemplateNotFound, known, "no template is called %s", shown)
}

// IsName reports whether a template reference is a name, not a path.
func IsName(ref string) bool {
	for i := 0; i < len(ref); i++ {
		c := ref[i]
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return ref != ""
}
