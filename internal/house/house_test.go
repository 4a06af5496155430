package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
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
	{"cmd/settlewatch/ui"},
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

// apart are rooms of different floors that must not know each other all the
// same: what the guard judges reaches it as facts, not by asking the index.
var apart = [][2]string{{"guard", "ingest"}, {"guard/approval", "ingest"}, {"guard/decision", "ingest"}, {"store", "assemble"}}

func TestTheGuardAndTheIndexerDoNotKnowEachOther(t *testing.T) {
	for _, f := range files(t) {
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			for _, pair := range apart {
				for _, p := range [][2]string{pair, {pair[1], pair[0]}} {
					if f.pkg == p[0] && path == module+"/"+p[1] {
						t.Errorf("%s: %s must not import %s", f.name, p[0], p[1])
					}
				}
			}
		}
	}
}

// root tells the composition root, with its tools, from the rooms below it.
func root(pkg string) bool { return strings.HasPrefix(pkg, "cmd/") && pkg != "cmd/settlewatch/ui" }

// What rooms may take from outside the module beside the plain parts of the
// standard library: anything that dials, runs programs or speaks SQL is named
// here or not imported.
var allowed = map[string][]string{
	"cmd/settlewatch/ui": {"net/http"}, // a handler of it; who listens is the composition root's business
	"assemble":           {},
	"assemble/jsjson":    {},
	"assemble/yaml12":    {},
	"guard":              {},
	"guard/approval":     {},
	"guard/canon":        {},
	"guard/decision": {"github.com/gofrs/flock", "github.com/tidwall/btree", "golang.org/x/crypto/chacha20poly1305", "golang.org/x/crypto/scrypt",
		"golang.org/x/sys/unix"},
	"guard/payment": {"golang.org/x/crypto/sha3", "golang.org/x/net/idna"},
	"ingest": {"github.com/fsnotify/fsnotify", "github.com/gofrs/flock", "github.com/hashicorp/golang-lru/v2/simplelru", "golang.org/x/sync/errgroup", "golang.org/x/sys/unix",
		"syscall"}, // to tell a shortage of descriptors from a file that cannot be read
	"ingest/event":      {},
	"internal/errcode":  {},
	"internal/plain":    {"golang.org/x/text/unicode/norm"},
	"internal/safefile": {"github.com/google/renameio/v2", "golang.org/x/sys/unix", "syscall"},
	"mcp": {"github.com/mark3labs/mcp-go/mcp", "github.com/mark3labs/mcp-go/server", "github.com/santhosh-tekuri/jsonschema/v6",
		"github.com/santhosh-tekuri/jsonschema/v6/kind", "golang.org/x/text/language", "golang.org/x/text/message"},
	"migrations": {},
	"store": {"database/sql", "database/sql/driver", "github.com/jmoiron/sqlx", "github.com/pressly/goose/v3",
		"modernc.org/sqlite", "modernc.org/sqlite/lib"},
}

// Parts of the standard library that need a place in allowed as well.
var guarded = []string{"net", "net/http", "net/rpc", "net/smtp", "net/textproto", "os/exec", "os/signal", "os/user", "plugin", "syscall", "unsafe",
	"database/sql", "database/sql/driver", "encoding/gob", "math/rand"}

func TestRoomsTakeFromOutsideOnlyWhatIsTheirs(t *testing.T) {
	for _, f := range files(t) {
		if root(f.pkg) {
			continue // what it must not do is dial
		}
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			outside := strings.Contains(strings.SplitN(path, "/", 2)[0], ".") && !strings.HasPrefix(path, module+"/")
			if (outside || slices.Contains(guarded, path)) && !slices.Contains(allowed[f.pkg], path) {
				t.Errorf("%s: %s must not import %s", f.name, f.pkg, path)
			}
		}
	}
}

func TestNothingButTheMarketRoomCanDial(t *testing.T) {
	for _, f := range files(t) {
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if (path == "net" || strings.HasPrefix(path, "net/http")) && f.pkg != "mcp/market" && f.pkg != "mcp/transport" && !serves(f, path) {
				t.Errorf("%s: %s must not import %s", f.name, f.pkg, path)
			}
		}
	}
}

// serves tells the pages of a person, which are served to this machine: a handler in
// their room, the one file that listens for it, and the one that measures it.
func serves(f file, path string) bool {
	return f.pkg == "cmd/settlewatch/ui" && path == "net/http" || f.name == filepath.Join("cmd", "settlewatch", "uicmd.go") || f.name == filepath.Join("cmd", "bench", "pages.go")
}

// What serves must not call anybody.
func TestWhatServesPagesDialsNobody(t *testing.T) {
	seen := 0
	for _, f := range files(t) {
		if !serves(f, "net/http") {
			continue
		}
		seen++
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok || x.Obj != nil {
				return true
			}
			name := x.Name + "." + sel.Sel.Name
			if strings.HasPrefix(name, "net.Dial") || strings.HasPrefix(name, "net.Lookup") || strings.HasPrefix(name, "net.Resolver") ||
				slices.Contains([]string{"http.Get", "http.Post", "http.Head", "http.PostForm", "http.Client", "http.Transport", "http.DefaultClient", "http.DefaultTransport", "http.NewRequest", "http.NewRequestWithContext"}, name) {
				t.Errorf("%s: %s has no place in what serves pages", f.fset.Position(sel.Pos()), name)
			}
			return true
		})
	}
	if seen < 5 {
		t.Errorf("only %d files serve pages; the test does not see them", seen)
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
		if root(f.pkg) {
			continue
		}
		// The name a package goes by here may be one of the file's own choice.
		names := map[string]string{}
		for _, spec := range f.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			base := path[strings.LastIndex(path, "/")+1:]
			if spec.Name == nil {
				names[base] = base
			} else if names[spec.Name.Name] = base; spec.Name.Name == "." && banned[base] != nil {
				t.Errorf("%s: a dot import of %s hides what is called", f.name, path)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil && slices.Contains(banned[names[x.Name]], sel.Sel.Name) {
				t.Errorf("%s: %s.%s is for cmd only", f.fset.Position(sel.Pos()), names[x.Name], sel.Sel.Name)
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
		"go.mod", "go.sum", "README.md", "LICENSE", "CHANGELOG.md", ".ci", ".golangci.yml", ".gitignore", ".gitattributes"}
	names := topLevel(t, filepath.Join("..", ".."))
	if !slices.Contains(names, "go.mod") {
		t.Fatalf("go.mod is not among %q", names)
	}
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s has no place at the top level", name)
		}
	}
}

// topLevel names what the repository holds at its top: what git tracks, and
// where there is no git, or no checkout, what no pattern of .gitignore leaves
// out. What a reader has built or recorded there is theirs.
func topLevel(t *testing.T, root string) []string {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil {
		list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
		list.Dir = root
		if out, err := list.Output(); err == nil {
			var names []string
			for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
				name, _, _ := strings.Cut(path, "/")
				names = append(names, name)
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
	}
	ignore, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	return unignored(t, root, string(ignore))
}

func unignored(t *testing.T, root, ignore string) []string {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		left := e.Name() == ".git"
		for pattern := range strings.Lines(ignore) {
			match, err := filepath.Match(strings.Trim(strings.TrimSpace(pattern), "/"), e.Name())
			if err != nil {
				t.Fatal(err)
			}
			left = left || match
		}
		if !left {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestWhatIsBuiltAtTheTopLevelIsNoPartOfIt(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"settlewatch", "a.prof", "stray", "go.mod"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, ".trace"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := unignored(t, root, "/settlewatch\n*.prof\n.trace/\n"), []string{"go.mod", "stray"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}
