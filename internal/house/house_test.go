package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/settlewatch/settlewatch"

// floors is the table of the design, from the top: an import may only point to
// a lower line. A package that is not named here has no place in the house.
var floors = [][]string{
	{"cmd/settlewatch", "cmd/bench"},
	{"mcp"},
	{"mcp/transport", "mcp/market"},
	{"guard"},
	{"guard/approval"},
	{"guard/decision", "ingest"},
	{"assemble", "store"},
	{"guard/payment", "migrations"},
	{"ingest/event", "guard/canon"},
	{"assemble/jsjson", "assemble/yaml12", "internal/errcode", "internal/plain", "internal/safefile", "internal/house"},
}

func floor(pkg string) int {
	return slices.IndexFunc(floors, func(line []string) bool { return slices.Contains(line, pkg) })
}

// file is one Go file of the module that is not a test.
type file struct {
	pkg, name string
	ast       *ast.File
	fset      *token.FileSet
}

func files(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && rel != ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, file{pkg: filepath.ToSlash(filepath.Dir(rel)), name: rel, ast: f, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d Go files from here; the walk does not see the module", len(out))
	}
	return out
}

func TestImportsOnlyPointDown(t *testing.T) {
	for _, f := range files(t) {
		from := floor(f.pkg)
		if from < 0 {
			t.Errorf("%s: package %s has no line in the table of the design", f.name, f.pkg)
			continue
		}
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			pkg, ours := strings.CutPrefix(path, module+"/")
			if ours && floor(pkg) <= from {
				t.Errorf("%s: %s imports %s, which is not below it", f.name, f.pkg, pkg)
			}
		}
	}
}

// Who may import what is dangerous in the wrong room.
var reserved = map[string][]string{
	"net":                                      {"mcp/transport", "mcp/market"},
	"net/http":                                 {"mcp/transport", "mcp/market"},
	"database/sql":                             {"store"},
	"github.com/jmoiron/sqlx":                  {"store"},
	"modernc.org/sqlite":                       {"store"},
	"modernc.org/sqlite/lib":                   {"store"},
	"github.com/pressly/goose/v3":              {"store"},
	"github.com/mark3labs/mcp-go/mcp":          {"mcp", "mcp/transport"},
	"github.com/mark3labs/mcp-go/server":       {"mcp", "mcp/transport"},
	"github.com/fsnotify/fsnotify":             {"ingest"},
	"github.com/spf13/cobra":                   {"cmd/settlewatch"},
	"encoding/gob":                             {},
	"unsafe":                                   {"assemble/jsjson"},
	"github.com/schollz/progressbar/v3":        {"cmd/settlewatch"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"mcp"},
}

func TestReservedImportsStayInTheirRooms(t *testing.T) {
	for _, f := range files(t) {
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if rooms, ok := reserved[path]; ok && !slices.Contains(rooms, f.pkg) && f.pkg != "cmd/bench" {
				t.Errorf("%s: %s must not import %s", f.name, f.pkg, path)
			}
		}
	}
}

// Calls that only the composition root may make: the clock, the environment,
// the standard streams and the end of the process.
var banned = map[string][]string{
	"time":    {"Now", "Since", "Until"},
	"os":      {"Getenv", "LookupEnv", "Environ", "Stdout", "Stdin", "Stderr", "Exit", "Args"},
	"net":     {"Dial", "DialTimeout", "Dialer", "Listen", "LookupHost", "LookupIP"},
	"http":    {"Get", "Post", "Head", "PostForm", "DefaultClient", "DefaultTransport"},
	"fmt":     {"Print", "Println", "Printf"},
	"log":     {"Print", "Println", "Printf", "Fatal", "Fatalf", "Panic"},
	"context": {"TODO"},
}

func TestClocksDialsAndStreamsBelongToTheCompositionRoot(t *testing.T) {
	for _, f := range files(t) {
		if strings.HasPrefix(f.pkg, "cmd/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil && slices.Contains(banned[x.Name], sel.Sel.Name) {
				t.Errorf("%s: %s.%s is for cmd only", f.fset.Position(sel.Pos()), x.Name, sel.Sel.Name)
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	said := map[string]bool{}
	for _, f := range files(t) {
		if filepath.Base(f.name) == "doc.go" && f.ast.Doc != nil && len(f.ast.Doc.Text()) > 80 {
			said[f.pkg] = true
		} else if _, ok := said[f.pkg]; !ok {
			said[f.pkg] = false
		}
	}
	for pkg, ok := range said {
		if !ok {
			t.Errorf("%s has no doc.go that says what it is for", pkg)
		}
	}
}

func TestTopLevelIsTheLayoutOfTheDesign(t *testing.T) {
	allowed := []string{"cmd", "ingest", "store", "migrations", "assemble", "guard", "mcp", "internal", "testdata", "docs",
		"go.mod", "go.sum", "README.md", "LICENSE", "CHANGELOG.md", ".ci", ".golangci.yml", ".gitignore", ".gitattributes", ".git"}
	entries, err := os.ReadDir(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s has no place at the top level", e.Name())
		}
	}
}
